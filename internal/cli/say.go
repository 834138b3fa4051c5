package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// A command prints through this file alone, which a test of cmd keeps: what it prints may
// hold text of an agent, a cluster or a repository.

// Printable keeps a cluster's text in one line, and from moving the cursor.
func Printable(s string) string { return printable.Text(s) }

// Say prints a line, or several if the text has line breaks. It filters the formatted text.
func Say(w io.Writer, format string, args ...any) {
	_ = Print(w, fmt.Sprintf(format, args...))
}

// Print is like Say for a whole text, and with the writer's error.
func Print(w io.Writer, text string) error {
	_, err := io.WriteString(w, printable.Lines(text)+"\n")
	return err
}

// Ask is like Say without the end of the line: the answer follows.
func Ask(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, printable.Lines(fmt.Sprintf(format, args...)))
}

// clearLine goes to the beginning of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// Progress writes over a terminal's current line.
func Progress(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, clearLine+printable.Text(fmt.Sprintf(format, args...)))
}

// EndProgress empties the line.
func EndProgress(w io.Writer) { _, _ = io.WriteString(w, clearLine) }

// Raw prints bytes unchanged: for output that is requested byte by byte, or a file.
func Raw(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// JSONLine prints v in one line.
func JSONLine(w io.Writer, v any) error {
	text, err := encoded(v, "")
	if err != nil {
		return err
	}
	return Raw(w, text)
}

func encoded(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return printable.JSON(text.Bytes()), err
}

// asYAML writes strings with hidden characters double-quoted: the YAML library prints most
// of them as they are. It is given words in their place.
func asYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	text, quoted := withoutHidden(text)
	if text, err = decode.JSONToYAML(text); err != nil {
		return nil, err
	}
	for word, s := range quoted {
		text = bytes.ReplaceAll(text, []byte(word), []byte(s))
	}
	return text, nil
}

// withoutHidden replaces the strings of a JSON document that have hidden characters.
func withoutHidden(document []byte) (replaced []byte, quoted map[string]string) {
	var out bytes.Buffer
	quoted = map[string]string{}
	for i := 0; i < len(document); i++ {
		if document[i] != '"' {
			out.WriteByte(document[i])
			continue
		}
		end := i + 1
		for document[end] != '"' {
			if document[end] == '\\' {
				end++
			}
			end++
		}
		literal := document[i : end+1]
		i = end
		if !bytes.ContainsFunc(literal, printable.Hidden) {
			out.Write(literal)
			continue
		}
		word := "hidden" + rand.Text()
		quoted[word] = printable.Quoted(string(literal))
		out.WriteString(`"` + word + `"`)
	}
	return out.Bytes(), quoted
}
