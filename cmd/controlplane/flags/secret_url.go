package flags

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// maxSecretFile bounds a file with a password or with URLs that contain one, in bytes.
const maxSecretFile = 16 << 10

// secretURL is a URL whose password comes from a file or the environment: every user of the machine
// can read a command line.
type secretURL struct {
	// flag takes the URL without a password. A second flag, with the suffix "-file", names the
	// file.
	flag string
	env  string
	like string // an example without a password
	fix  string // what to do with a password instead
}

// read returns the value from one of the three sources; empty if none has it.
func (s secretURL) read(given, file string) (string, error) {
	switch {
	case given != "" && file != "":
		return "", fmt.Errorf("--%[1]s and --%[1]s-file: give one of them", s.flag)
	case file != "":
		return ReadSecret("--"+s.flag+"-file", file)
	case given == "":
		return os.Getenv(s.env), nil
	}
	for _, text := range split(given) {
		if err := s.check(text); err != nil {
			return "", err
		}
	}
	return given, nil
}

// check must not quote the text, which may contain a password anyway.
func (s secretURL) check(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("--%s: is not a URL; it looks like %s", s.flag, s.like)
	}
	if _, secret := u.User.Password(); secret || u.Query().Has("password") {
		return fmt.Errorf("--%s: holds a password, which every user of this machine can read on the command line; %s", s.flag, s.fix)
	}
	return nil
}

// split splits a list of URLs.
func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' || r == ' ' })
}

// ReadSecret reads a secret from the file that a flag names. It must not be empty.
func ReadSecret(flag, file string) (string, error) {
	text, err := boundedfile.Read(file, maxSecretFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if strings.TrimSpace(secret) == "" {
		return "", fmt.Errorf("%s: %s is empty; it should hold what is read from it, on its first line", flag, file)
	}
	return secret, nil
}
