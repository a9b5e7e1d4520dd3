// Package jinja renders the Jinja templates that language models carry as their chat template, and nothing else of
// Jinja: no loader, no include or import, no files, no clock, no randomness.
//
// A chat template is a program that came with the model, so it is hostile input. General template libraries for Go
// evaluate without a budget: a template of fifty bytes that calls itself or doubles a string ends the process, and a
// Go program cannot recover from either. This interpreter charges every node, iteration and byte it creates to a
// [Limits] budget, bounds nesting while parsing and calls while running, and watches a context.
//
// The dialect is the one of Transformers' apply_chat_template: Jinja2 with trim_blocks and lstrip_blocks, the loop
// controls, the immutable sandbox (no method that changes a list or a dict exists), tojson without HTML escaping,
// raise_exception, strftime_now (of the fixed date [Options].Now) and the generation block, which renders its body.
// Values print as Python prints them. What the dialect has and this package does not is refused with its name
// ([UnsupportedError]), never approximated.
package jinja
