//go:build !unix

package launch

import "errors"

// Supported reports whether a process of this system can go on as another program.
const Supported = false

func execute(string, []string) error {
	return errors.New("a process of this system cannot go on as another program")
}
