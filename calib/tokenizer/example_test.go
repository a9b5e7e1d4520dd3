package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/llmquant/quantize/calib/tokenizer"
)

func Example() {
	tok, err := tokenizer.Open("../../testdata/golm-llama")
	if err != nil {
		log.Fatal(err)
	}
	ids := tok.Encode("for i := range n {\n", true)
	fmt.Println(ids)
	fmt.Printf("%q\n", tok.Decode(ids))
	eos, _ := tok.EOS()
	fmt.Println(tok.Vocab(), "ids, the last one", tok.Token(eos))
	// Output:
	// [1856 287 294 560 282 270]
	// "for i := range n {\n"
	// 2048 ids, the last one <|endoftext|>
}

func ExampleTokenizer_EncodeAppend() {
	tok, err := tokenizer.Open("../../testdata/golm-llama")
	if err != nil {
		log.Fatal(err)
	}
	var ids []int32
	for _, document := range []string{"package main\n", "func main() {}\n"} {
		ids = tok.EncodeAppend(ids, document, false)
		if eos, ok := tok.EOS(); ok {
			ids = append(ids, eos)
		}
	}
	fmt.Printf("%q\n", tok.Decode(ids))
	// Output:
	// "package main\n<|endoftext|>func main() {}\n<|endoftext|>"
}
