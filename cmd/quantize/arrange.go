package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// jobCommand is the hidden command that `quantize MODEL --method …` stands for.
const jobCommand = "run"

// arrange rewrites a command line so that flags may stand before or after positional arguments (urfave/cli stops at
// the first positional) and so that the main job, which has no verb, becomes a command like the others.
func arrange(args []string) []string {
	if len(args) < 2 {
		return args
	}
	rest := args[1:]
	verb := rest[0]
	if isRootWord(verb) {
		return args
	}
	command := commandByName(verb)
	if command == nil {
		command = commandByName(jobCommand)
	} else {
		rest = rest[1:]
	}
	if len(command.Subcommands) > 0 {
		return args
	}
	flags, positional := split(rest, valueFlags(command))
	out := append([]string{args[0], command.Name}, flags...)
	if len(positional) > 0 {
		out = append(append(out, "--"), positional...)
	}
	return out
}

// isRootWord reports whether the first argument belongs to the application itself.
func isRootWord(s string) bool {
	switch s {
	case "help", "h", "--help", "-h", "--version", "-v", "--generate-bash-completion", "completion":
		return true
	}
	return false
}

func commandByName(name string) *cli.Command {
	for _, c := range commands(&console{}) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// valueFlags is the set of flag names of a command that take a value.
func valueFlags(c *cli.Command) map[string]bool {
	takes := map[string]bool{}
	for _, f := range c.Flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, n := range f.Names() {
			takes[n] = !isBool
		}
	}
	return takes
}

// split separates flags (with their values) from positional arguments; everything behind "--" is positional.
func split(args []string, takesValue map[string]bool) (flags, positional []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return flags, append(positional, args[i+1:]...)
		case len(a) < 2 || a[0] != '-':
			positional = append(positional, a)
			continue
		}
		flags = append(flags, a)
		name := strings.TrimLeft(a, "-")
		if !strings.Contains(name, "=") && takesValue[name] && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		} else if !strings.Contains(name, "=") && takesValue[name] {
			return flags, nil // its value is missing: nothing may take that place
		}
	}
	return flags, positional
}
