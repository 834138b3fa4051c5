package config

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// values are keys with their values, gathered from flags: text and binary data.
type values struct {
	text   map[string]string
	binary map[string][]byte
}

// valueFlags describe where values come from. Their errors name keys and files, never values.
type valueFlags struct {
	literals, files []string
	stdin           string
}

func (f *valueFlags) gather(in io.Reader) (values, error) {
	v := values{text: map[string]string{}, binary: map[string][]byte{}}
	for i, s := range f.literals {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return v, cli.Usage(fmt.Errorf("--from-literal number %d: expected KEY=VALUE", i+1)) // not quoted: it may be a value
		}
		if err := v.add(key, []byte(value)); err != nil {
			return v, err
		}
	}
	for _, s := range f.files {
		key, path, ok := strings.Cut(s, "=")
		if !ok {
			key, path = filepath.Base(s), s
		}
		if err := v.addFrom(key, path, in); err != nil {
			return v, err
		}
	}
	if f.stdin != "" {
		if err := v.addFrom(f.stdin, "-", in); err != nil {
			return v, err
		}
	}
	if len(v.text)+len(v.binary) == 0 {
		return v, cli.Usage(errors.New("no keys: give --from-file, --from-stdin or --from-literal"))
	}
	return v, nil
}

func (v values) addFrom(key, path string, in io.Reader) error {
	value, err := cli.ReadLimited(path, in, maxSecret)
	if err != nil {
		return cli.Usage(fmt.Errorf("key %q: %w", key, err))
	}
	return v.add(key, value)
}

func (v values) add(key string, value []byte) error {
	_, text := v.text[key]
	_, binary := v.binary[key]
	switch {
	case text || binary:
		return cli.Usage(fmt.Errorf("key %q is given twice", key))
	case utf8.Valid(value):
		v.text[key] = string(value)
	default:
		v.binary[key] = value
	}
	return nil
}

// digestFlag adds the flag with the digest of the content from which the new one was made.
func digestFlag(f *pflag.FlagSet, digest *string, what string) {
	f.StringVar(digest, "if-digest", "", "refuse the write if the "+what+" has another digest: get shows it")
}
