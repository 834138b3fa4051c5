// Package step runs in the pod of a build before and after the builder: one program fetches the
// commit, and one pushes the image. Only they receive the credentials that they need. The builder,
// which executes a Dockerfile's commands, has none.
//
// One volume connects them: it contains the commit's files, then the image as an OCI image layout.
// The commit's name is in another volume: the builder, which can write to all of its volumes, must
// not choose the tag. The result of a step is in its container's termination message.
package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// Paths in the pod.
const (
	Work        = "/pipeops"             // the volume that the steps share
	Context     = Work + "/context"      // the commit's files
	Image       = Work + "/image"        // OCI image layout
	CommitDir   = "/run/pipeops/commit"  // a volume that the builder does not have
	commitFile  = "commit"               // in CommitDir: the commit's 40 digits
	GitSecret   = "/run/pipeops/git"     //nolint:gosec // no credential: a volume of a Secret, a file for each key
	DockerFiles = "/run/pipeops/docker"  // config.json
	CAFiles     = "/run/pipeops/ca"      // certificates in PEM
	Termination = "/dev/termination-log" // Kubernetes' default
)

// Result is a step's termination message.
type Result struct {
	Commit  string `json:"commit,omitempty"`
	Tag     string `json:"tag,omitempty"`
	Image   string `json:"image,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Message string `json:"message,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// maxMessage is how much Kubernetes keeps of a termination message.
const maxMessage = 4096

// Parse decodes a termination message. It comes from a pod, so its content is untrusted.
func Parse(message string) (Result, bool) {
	var r Result
	if len(message) > maxMessage || !strings.HasPrefix(message, "{") || json.Unmarshal([]byte(message), &r) != nil {
		return Result{}, false
	}
	return r, true
}

// failure is why a step failed, for users and for programs.
type failure struct{ cause, message, fix string }

func (f *failure) Error() string { return f.message + " (fix: " + f.fix + ")" }

func fail(cause, fix, format string, args ...any) error {
	return &failure{cause, fmt.Sprintf(format, args...), fix}
}

// Report writes the result for the agent, and returns err.
func Report(file string, r Result, err error) error {
	var f *failure
	switch {
	case errors.As(err, &f):
		r.Cause, r.Message, r.Fix = f.cause, clip(f.message), clip(f.fix)
	case err != nil:
		r.Cause, r.Message = "internal", clip(err.Error())
	}
	text, encodeErr := json.Marshal(r)
	if encodeErr == nil {
		encodeErr = os.WriteFile(file, text, 0o600)
	}
	return errors.Join(err, encodeErr)
}

const maxWords = 1000

func clip(s string) string { return printable.Shorten(s, maxWords) }
