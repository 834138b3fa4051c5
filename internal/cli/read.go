package cli

import (
	"fmt"
	"io"
	"os"
)

// ReadLimited reads a file, or standard input for "-".
func ReadLimited(path string, stdin io.Reader, limit int) ([]byte, error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(text) > limit:
		return nil, fmt.Errorf("%s: has more than %d bytes", path, limit)
	}
	return text, nil
}
