package git

import "github.com/go-git/go-git/v5/plumbing"

// Unpack is unpack with a commit in hexadecimal.
func Unpack(pack []byte, want, folder string, l Limits) (string, Files, error) {
	return (&located{hash: plumbing.NewHash(want)}).unpack(pack, folder, l)
}
