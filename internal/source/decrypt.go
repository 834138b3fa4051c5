package source

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// identityFile is the ending of the keys in a Secret that have age identities. Flux has the same.
const identityFile = ".agekey"

// decrypt replaces encrypted files by their plaintext, where the source has keys, and keeps the
// values that were encrypted in out. It returns why files were not decrypted that something else
// than an App may not need.
func (a *applier) decrypt(ctx context.Context, o *object, files git.Files, out *brought) (map[string]render.Problem, error) {
	app := ""
	if o.Spec.Type == runnerapi.SourceApp {
		app = strings.Trim(o.Spec.Path, "/")
	}
	encrypted := git.Files{}
	for name, text := range files {
		if (app == "" || name == app) && render.Encrypted(text) {
			encrypted[name] = text
		}
	}
	switch {
	case len(encrypted) == 0:
		return nil, nil
	case o.Spec.DecryptionKeys != "":
		return a.decryptFiles(ctx, o, encrypted, files, out)
	case app != "":
		return nil, render.Result{Problem: render.Plain(app, files[app])}.Err()
	}
	return nil, nil // the process that renders refuses those that it needs
}

func (a *applier) decryptFiles(ctx context.Context, o *object, encrypted, files git.Files, out *brought) (map[string]render.Problem, error) {
	keys, err := a.decryptionKeys(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := render.Process{Command: a.Render}.Run(ctx, render.Job{Type: render.Decrypt, Files: encrypted, Keys: keys})
	if err != nil {
		return nil, err
	}
	out.secrets = r.Decrypted
	for _, text := range r.Texts {
		files[text.Name] = text.Body
	}
	if failed, ok := r.Undecrypted[strings.Trim(o.Spec.Path, "/")]; ok && o.Spec.Type == runnerapi.SourceApp {
		return nil, render.Result{Problem: &failed}.Err()
	}
	return r.Undecrypted, nil
}

// decryptionKeys reads the age identities of the Secret that the source names.
func (a *applier) decryptionKeys(ctx context.Context, o *object) (render.Keys, error) {
	keys := render.Keys{
		Source:     fmt.Sprintf("Secret %s in namespace %s", o.Spec.DecryptionKeys, o.Namespace),
		Identities: map[string][]byte{},
	}
	data, err := a.secret(ctx, o, o.Spec.DecryptionKeys)
	if err != nil {
		return keys, err
	}
	for name, text := range data {
		if path.Ext(name) == identityFile {
			keys.Identities[name] = text
		}
	}
	return keys, nil
}

// withheld replaces the text of an error that quotes something decrypted.
const withheld = "the text of this error is withheld, because it contains something that was decrypted"

// conceal withholds the text of an error that quotes a value that was decrypted, or a piece of it.
func conceal(err error, secrets []string) error {
	if err == nil || len(secrets) == 0 {
		return err
	}
	known := asProblem(err)
	parts := []string{known.Error()}
	p, ok := errors.AsType[*problem.Error](known)
	if ok {
		parts = append(parts, p.Field, p.Location)
		for _, f := range p.Fields {
			parts = append(parts, f.Field, f.Location, f.Message)
		}
	}
	switch {
	case !quotes(strings.Join(parts, "\n"), secrets):
		return err
	case !ok:
		return errors.New(withheld)
	}
	return problem.New(p.Status, p.Code,
		"render the files yourself, with the decrypted ones; encrypt only what is secret (sops --encrypted-regex '^(data|stringData)$')", withheld)
}

// piece is how much of a value an error may not quote, in bytes. A value of less than least bytes
// is no secret: it would withhold every error.
const piece, least = 12, 4

// quotes reports whether a text contains a value, or a piece of one, as it is, with escapes or in
// base64.
func quotes(text string, secrets []string) bool {
	pieces := map[string]bool{}
	for i := 0; i+piece <= len(text); i++ {
		pieces[text[i:i+piece]] = true
	}
	for _, secret := range secrets {
		for _, form := range []string{secret, strings.Trim(strconv.Quote(secret), `"`), base64.StdEncoding.EncodeToString([]byte(secret))} {
			if len(secret) >= least && len(form) < piece && strings.Contains(text, form) {
				return true
			}
			for i := 0; i+piece <= len(form); i++ {
				if pieces[form[i:i+piece]] {
					return true
				}
			}
		}
	}
	return false
}
