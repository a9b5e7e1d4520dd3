// Package chat turns conversations into text the way the model expects it: with the chat template that came with the
// model, or with one of two built-in layouts.
package chat

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/llmquant/quantize/calib/chat/jinja"
	"github.com/llmquant/quantize/formats/safeio"
)

// Names of the built-in layouts.
const (
	ChatML = "chatml" // <|im_start|>role, newline, content, <|im_end|>, newline
	Plain  = "plain"  // the contents alone, a blank line between them
)

// Hint is what a user can do about a template that does not serve.
const Hint = "choose another layout with --chat-template chatml|plain|FILE"

// Template renders conversations. It is safe for concurrent use.
type Template struct {
	builtin string // ChatML or Plain
	path    string // of the file, for messages
	jinja   *jinja.Template
	tokens  map[string]string // special tokens by their name in the template: bos_token, …
}

// Builtin returns the layout of that name, nil when there is none.
func Builtin(name string) *Template {
	if name == ChatML || name == Plain {
		return &Template{builtin: name}
	}
	return nil
}

// frozen is the date strftime_now prints: the date Llama 3's template falls back to. A moving date would give another
// calibration set, and so another model, every day.
var frozen = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// renderTime is a backstop: the step budget ends every template long before, on any machine this side of broken.
const renderTime = 60 * time.Second

// Parse compiles a Jinja template. path names it in messages; tokens are the special tokens it can refer to.
func Parse(source, path string, tokens map[string]string) (*Template, error) {
	tpl, err := jinja.Parse(source, jinja.Options{Now: frozen})
	if err != nil {
		return nil, unusable(path, err)
	}
	return &Template{path: path, jinja: tpl, tokens: tokens}, nil
}

// unusable is a template that this program cannot run: not the fault of any conversation.
func unusable(path string, err error) error {
	cause := safeio.Unsupportedf("the chat template cannot be used: %v", err)
	var limit *jinja.LimitError
	if errors.As(err, &limit) {
		cause = safeio.Limitf("%v", err)
	}
	return &safeio.Error{Op: "render chat template", Path: path, Off: -1, Hint: Hint, Err: cause}
}

// AddsSpecial tells whether the text of Render still wants the tokenizer's own special tokens around it: templates
// print them themselves, the plain layout does not.
func (t *Template) AddsSpecial() bool { return t.builtin == Plain }

// RefusedError is a conversation that the template does not accept: it raised an exception of its own (roles that do
// not alternate, a system message it has no place for) or it failed on a field of the conversation.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string {
	return "the chat template refuses the conversation: " + e.Reason
}

// Render lays out one conversation. It returns *RefusedError when this conversation cannot be laid out, the error of
// ctx, or a *safeio.Error when no conversation can.
func (t *Template) Render(ctx context.Context, messages []Message) (string, error) {
	switch t.builtin {
	case ChatML:
		var b strings.Builder
		for _, m := range messages {
			b.WriteString("<|im_start|>" + m.Role + "\n" + m.Content + "<|im_end|>\n")
		}
		return b.String(), nil
	case Plain:
		texts := make([]string, len(messages))
		for i, m := range messages {
			texts[i] = m.Content
		}
		return strings.Join(texts, "\n\n"), nil
	}
	limited, cancel := context.WithTimeout(ctx, renderTime)
	defer cancel()
	out, err := t.jinja.Render(limited, t.variables(messages))
	return out, t.explain(ctx, err)
}

// variables are what Transformers passes to a template.
func (t *Template) variables(messages []Message) *jinja.Dict {
	list := &jinja.List{Items: make([]jinja.Value, len(messages))}
	for i, m := range messages {
		list.Items[i] = m.fields
	}
	vars := jinja.NewDict()
	vars.Set("messages", list)
	vars.Set("tools", nil)
	vars.Set("documents", nil)
	vars.Set("add_generation_prompt", false)
	for name, text := range t.tokens {
		vars.Set(name, text)
	}
	return vars
}

// explain tells apart whose fault an error is: the conversation's, the template's, or the caller's who gave up.
func (t *Template) explain(ctx context.Context, err error) error {
	var raised *jinja.RaisedError
	var runtime *jinja.RuntimeError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &raised), errors.As(err, &runtime):
		return &RefusedError{err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		err = &jinja.LimitError{What: "rendering time"}
	}
	return unusable(t.path, err)
}
