// Package boundedfile reads files that others write, whose size is not known.
package boundedfile

import (
	"fmt"
	"io"
	"os"
	"runtime"
)

// Read reads a file. One of more than most bytes is an error.
func Read(file string, most int64) ([]byte, error) {
	text, err := Head(file, most+1)
	if err != nil {
		return nil, err
	}
	return within(text, file, most)
}

// Secret is like Read for a file that only its owner may be able to read.
func Secret(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory (fix: name the file in it)", file)
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows": // Windows has no modes
		return nil, fmt.Errorf("%s can be read by others (fix: chmod 600 %s)", file, file)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	return within(text, file, most)
}

func within(text []byte, file string, most int64) ([]byte, error) {
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, most)
	}
	return text, nil
}

// Head reads at most n bytes of a file. A caller whose decoder refuses more than so many bytes asks
// for one more.
func Head(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, n))
}
