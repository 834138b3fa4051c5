package render

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
)

// Child renders one job from standard input and ends the process, when the process was
// started for that. Programs that are a Process' command call it before anything else.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != Argument {
		return
	}
	os.Exit(child(os.Stdin, os.Stdout, os.Stderr))
}

func child(in io.Reader, out, errs io.Writer) int {
	if err := cage.Enter(growth); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	up := &upstream{in: gob.NewDecoder(in), out: gob.NewEncoder(out)}
	var first reply
	if err := up.in.Decode(&first); err != nil || first.Job == nil {
		fmt.Fprintln(errs, "read the job:", err)
		return 1
	}
	if err := up.tell(do(*first.Job, up)); err != nil {
		fmt.Fprintln(errs, "write the result:", err)
		return 1
	}
	return 0
}

// asker answers the lookups of a job's templates, and receives which chart was read, and the
// position.
type asker interface {
	read(c Identity) error
	at(template string) error
	lookup(q Question) ([]byte, error)
}

// upstream is the child's end.
type upstream struct {
	in  *gob.Decoder
	out *gob.Encoder
}

// tell sends the result of the job.
func (u *upstream) tell(r Result) error {
	for i := range r.Texts {
		if err := u.out.Encode(message{Text: &r.Texts[i]}); err != nil {
			return err
		}
	}
	for i := range r.CRDs {
		if err := u.out.Encode(message{CRD: &r.CRDs[i]}); err != nil {
			return err
		}
	}
	r.Texts, r.CRDs = nil, nil
	return u.out.Encode(message{Done: true, Result: r})
}

func (u *upstream) read(c Identity) error { return u.out.Encode(message{Chart: &c}) }

func (u *upstream) at(template string) error { return u.out.Encode(message{At: template}) }

func (u *upstream) lookup(q Question) ([]byte, error) {
	if err := u.out.Encode(message{Ask: &q}); err != nil {
		return nil, err
	}
	var r reply
	if err := u.in.Decode(&r); err != nil {
		return nil, err
	}
	if r.Refused != "" {
		return nil, errors.New(r.Refused)
	}
	return r.Object, nil
}
