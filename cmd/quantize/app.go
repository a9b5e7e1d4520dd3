package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// app is the whole command line. Exit codes and messages are ours: the library only parses.
func app(c *console) *cli.App {
	return &cli.App{
		Name:                      "quantize",
		Usage:                     "make trained language models smaller, offline, for the engines that serve them",
		UsageText:                 "quantize [MODEL] --method M [--calib FILE]... -o OUT\nquantize COMMAND [arguments]",
		Description:               "MODEL: a Hugging Face directory, a Hub cache directory, a .gguf file, or an artifact of this tool.",
		HideVersion:               true,
		EnableBashCompletion:      true,
		Suggest:                   true,
		DisableSliceFlagSeparator: true,
		Writer:                    c.out,
		ErrWriter:                 c.err,
		Commands:                  commands(c),
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              onUsageError,
		Action: func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return usagef("unknown command or missing --method: %s", ctx.Args().First())
			}
			return cli.ShowAppHelp(ctx)
		},
	}
}

// commands lists every verb; the main job is the hidden one.
func commands(c *console) []*cli.Command {
	all := []*cli.Command{
		runCommand(c), convertCommand(c), inspectCommand(c), verifyCommand(c), evalCommand(c),
		imatrixCommand(c), tokenizeCommand(c), listCommand(c), versionCommand(c),
	}
	for _, cmd := range all {
		cmd.OnUsageError = onUsageError
	}
	return all
}

func onUsageError(ctx *cli.Context, err error, _ bool) error { return flagProblem(ctx, err) }

// The flags that several commands share.

func jsonFlag(c *console) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "results as JSON on stdout", Destination: &c.json}
}

func outputFlags(c *console) []cli.Flag {
	return []cli.Flag{
		jsonFlag(c),
		&cli.BoolFlag{Name: "quiet", Usage: "errors only", Destination: &c.quiet},
		&cli.BoolFlag{Name: "no-progress", Usage: "no progress bar or lines", Destination: &c.noProgress},
	}
}

func resourceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "auto", Usage: "auto or cpu"},
		&cli.IntFlag{Name: "threads", Usage: "worker threads (default: all cores)"},
		&cli.StringFlag{Name: "memory", Usage: "memory limit, e.g. 12GB (default: 80 % of what is available)"},
	}
}

func calibFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "calib-column", Usage: "text column, or a column of token ids or chat messages"},
		&cli.StringFlag{Name: "chat-template", Usage: "chatml, plain or a template file, for chat columns (default: the model's own)"},
		&cli.IntFlag{Name: "samples", Usage: "windows to use (default: the method's usual)"},
		&cli.IntFlag{Name: "seq-len", Usage: "tokens per window (default: the method's usual, at most the model's context)"},
	}
}

// oneArgument returns the command's single positional argument.
func oneArgument(ctx *cli.Context, what string) (string, error) {
	switch ctx.Args().Len() {
	case 1:
		return ctx.Args().First(), nil
	case 0:
		return "", usagef("%s is missing", what)
	}
	return "", usagef("one %s is expected, found %d arguments: %v", what, ctx.Args().Len(), ctx.Args().Slice())
}

// checkDevice accepts the devices this build can compute on.
func checkDevice(ctx *cli.Context) error {
	switch d := ctx.String("device"); d {
	case "auto", "cpu":
		return nil
	default:
		return &usageError{text: fmt.Sprintf("device %q is not in this build", d), hint: "`quantize list devices` shows what is; --device cpu always works"}
	}
}
