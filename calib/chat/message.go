package chat

import (
	"strings"

	"github.com/llmquant/quantize/calib/chat/jinja"
	"github.com/llmquant/quantize/formats/safeio"
)

// Message is one turn of a conversation. Templates see it with every field it was read with (tool calls, names,
// reasoning), Role and Content are the two that all conversations have.
type Message struct {
	Role    string
	Content string // the text of it, when the content was a list of parts
	fields  *jinja.Dict
}

// NewMessage returns a message of a role and a text.
func NewMessage(role, content string) Message {
	d := jinja.NewDict()
	d.Set("role", role)
	d.Set("content", content)
	return Message{role, content, d}
}

// roles translates the names of the ShareGPT shape ({"from": "human", "value": …}).
var roles = map[string]string{
	"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
	"system": "system", "tool": "tool",
}

// FromShareGPT returns the message that a turn of the ShareGPT shape means. Unknown speakers keep their name.
func FromShareGPT(from, value string) Message {
	if r, ok := roles[from]; ok {
		from = r
	}
	return NewMessage(from, value)
}

// ParseMessages reads a JSON array of messages: objects with role and content, or with from and value.
func ParseMessages(v safeio.Value) ([]Message, error) {
	if v.Kind() != safeio.Array {
		return nil, safeio.Corruptf("a conversation is an array of messages, not %s", v.Kind())
	}
	var out []Message
	for item := range v.Items() {
		m, err := parseMessage(item)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// parseMessage reads one message in either spelling.
func parseMessage(v safeio.Value) (Message, error) {
	if v.Kind() != safeio.Object {
		return Message{}, safeio.Corruptf("a message is an object with role and content, not %s", v.Kind())
	}
	if v.Get("role").Kind() != safeio.String {
		from, value := v.Get("from"), v.Get("value")
		if from.Kind() != safeio.String || value.Kind() != safeio.String {
			return Message{}, safeio.Corruptf("a message has neither role and content nor from and value")
		}
		f, _ := from.Str()
		s, _ := value.Str()
		return FromShareGPT(f, s), nil
	}
	val, err := jinja.FromJSON([]byte(v.Text()))
	if err != nil {
		return Message{}, safeio.Corruptf("a message cannot be read: %v", err)
	}
	d := val.(*jinja.Dict)
	role, _ := d.Get("role")
	content, _ := d.Get("content")
	return Message{role.(string), plainText(content), aliasReasoning(d)}, nil
}

// plainText is the text of a content: a string, or the text parts of a list.
func plainText(content jinja.Value) string {
	switch c := content.(type) {
	case string:
		return c
	case *jinja.List:
		var b strings.Builder
		for _, part := range c.Items {
			if d, ok := part.(*jinja.Dict); ok {
				if text, _ := d.Get("text"); text != nil {
					b.WriteString(plainText(text))
				}
			}
		}
		return b.String()
	}
	return ""
}

// reasoningFields are the names under which data sets keep an assistant's reasoning, the standard one first.
var reasoningFields = [...]string{"reasoning_content", "thinking", "reasoning"}

// aliasReasoning copies the reasoning to both names that templates read, as Transformers does.
func aliasReasoning(d *jinja.Dict) *jinja.Dict {
	for _, name := range reasoningFields {
		reasoning, _ := d.Get(name)
		if reasoning == nil {
			continue
		}
		if _, ok := d.Get("thinking"); !ok {
			out := jinja.NewDict()
			out.Set("thinking", reasoning)
			for k, v := range d.All() {
				out.Set(k, v)
			}
			d = out
		}
		d.Set("reasoning_content", reasoning)
		return d
	}
	return d
}
