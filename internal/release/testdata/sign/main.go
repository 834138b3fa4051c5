// Command sign prints the public half of a key file, then the signature of its standard input.
// A test runs it as a process of its own: the race detector would make scrypt take half a minute.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

func main() {
	if err := sign(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sign(keyFile, passphrase string) error {
	file, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	key, err := release.ParseSecretKey(file, passphrase)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n%s", key.Public(), key.Sign(data, "v1.2.3"))
	return err
}
