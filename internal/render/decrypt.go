package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render/sops"
)

// Decrypt is a job of its own: templates run in another process than the one that has the keys.
const Decrypt Type = "decrypt"

// Keys are the age identities of a Decrypt job.
type Keys struct {
	Source     string            // where they are from, for errors
	Identities map[string][]byte // files as age-keygen writes them, by their names
}

// KeysInvalid is the code of a Secret without usable keys: that of other Secrets of a source.
const KeysInvalid problem.Code = "credentials_invalid"

// decrypt returns the plaintext of each encrypted file, or why it has none: a kustomization or a
// chart may not need that file.
func decrypt(j Job) (r Result) {
	defer func() {
		if recover() != nil { // what it says may be secret
			r = wrong("report this, with the files if they may be shown", "the files cannot be decrypted")
		}
	}()
	keys, err := sops.ReadKeys(j.Keys.Source, j.Keys.Identities)
	if err != nil {
		r = wrong("correct the Secret (docs/reference/git-sources.md)", "%s cannot decrypt: %v", j.Keys.Source, err)
		r.Problem.Code = KeysInvalid
		return r
	}
	r.Undecrypted = map[string]Problem{}
	for _, name := range slices.Sorted(maps.Keys(j.Files)) {
		if !sops.Is(name, j.Files[name]) {
			continue
		}
		plain, failed := keys.Decrypt(name, j.Files[name])
		if failed != nil {
			r.Undecrypted[name] = Problem{Code: problem.Code(failed.Reason), Message: clip(failed.Message), Fix: failed.Fix}
			continue
		}
		r.Texts = append(r.Texts, Text{name, plain.Text})
		r.Decrypted = append(r.Decrypted, plain.Values...)
	}
	return r
}

// usable refuses a file that is still encrypted.
func (j Job) usable(name string) error {
	if failed, ok := j.Undecrypted[name]; ok {
		return &undecrypted{failed}
	}
	if failed := Plain(name, j.Files[name]); failed != nil {
		return &undecrypted{*failed}
	}
	return nil
}

// Plain refuses a file that is encrypted, in a source that has no keys.
func Plain(name string, text []byte) *Problem {
	if !sops.Is(name, text) {
		return nil
	}
	return &Problem{
		Code: problem.Code(sops.Encrypted), Message: name + " is encrypted with SOPS, and the source has no keys to decrypt it",
		Fix: "put the age identity into a Secret of the namespace, and name it in the source: --decrypt SECRET (decryptionKeys)",
	}
}

// Encrypted reports whether a file may be encrypted, without parsing it.
func Encrypted(text []byte) bool { return sops.MayBe(text) }

// undecrypted is a Problem as an error.
type undecrypted struct{ Problem }

func (u *undecrypted) Error() string { return fmt.Sprintf("%s (fix: %s)", u.Message, u.Fix) }

// wrongFile is like wrong for an error that may be of an encrypted file.
func wrongFile(err error, fix string) Result {
	if u, ok := errors.AsType[*undecrypted](err); ok {
		return Result{Problem: &u.Problem}
	}
	return wrong(fix, "%v", err)
}

// decryption are the codes of files that are not decrypted.
var decryption = []problem.Code{
	problem.Code(sops.Encrypted), problem.Code(sops.NoKey), problem.Code(sops.Altered), problem.Code(sops.Unsupported), KeysInvalid,
}
