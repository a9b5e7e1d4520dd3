package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/llmquant/quantize/calib"
)

func tokenizeCommand(c *console) *cli.Command {
	return &cli.Command{
		Name: "tokenize", Usage: "token ids as JSON, one document per line", ArgsUsage: "MODEL [TEXT]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "documents of a file, of any kind that --calib takes"},
			&cli.StringFlag{Name: "calib-column", Usage: "text column, or a column of chat messages"},
			&cli.StringFlag{Name: "chat-template", Usage: "chatml, plain or a template file, for chat columns"},
			&cli.BoolFlag{Name: "no-special", Usage: "without the tokenizer's own BOS and EOS"},
			jsonFlag(c),
		},
		Action: func(ctx *cli.Context) error { return c.tokenize(ctx) },
	}
}

func (c *console) tokenize(ctx *cli.Context) error {
	args := ctx.Args().Slice()
	file := ctx.String("file")
	switch {
	case len(args) == 0:
		return usagef("MODEL is missing")
	case len(args) > 2:
		return usagef("one TEXT is expected; quote it")
	case (len(args) == 2) == (file != ""):
		return usagef("give either TEXT or --file")
	}
	t, err := openTokenizer(args[0])
	if err != nil {
		return err
	}
	special := !ctx.Bool("no-special")
	if file == "" {
		return c.printIDs(t.EncodeAppend(nil, args[1], special))
	}
	src, err := calib.OpenSource([]string{file}, calib.Options{Column: ctx.String("calib-column"), Template: ctx.String("chat-template"),
		ModelDir: args[0], ModelFiles: chatFiles(args[0]), KeepEmpty: true, NoSpecial: !special})
	if err != nil {
		return err
	}
	for tok, err := range src.Tokens(ctx.Context, t, 0) {
		if err == nil && tok.Why != "" {
			err = fmt.Errorf("%s %d: %s", tok.File, tok.Row, tok.Why)
		}
		if err == nil {
			err = c.printIDs(tok.IDs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printIDs writes one line: a JSON array.
func (c *console) printIDs(ids []int32) error {
	if ids == nil {
		ids = []int32{}
	}
	return c.printJSON(ids)
}
