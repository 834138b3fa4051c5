package appform

import (
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// groupPrefix begins the name of a group among emails.
const groupPrefix = "group:"

// guard has the fields about visitors.
func (f Form) guard() [5]string {
	return [5]string{f.AllowFrom, f.BasicAuth, f.SignIn, f.SignInTo, f.Tokens}
}

// signInText returns who is let in after a sign-in, and the provider's Secret.
func signInText(s *runnerapi.SignIn) (who, to string) {
	if s == nil {
		return "", ""
	}
	words := append([]string(nil), s.Emails...)
	for _, group := range s.Groups {
		words = append(words, groupPrefix+group)
	}
	return strings.Join(words, " "), s.Secret
}

// signIn returns the sign-in of the form; nil for none.
func (f Form) signIn() *runnerapi.SignIn {
	if f.SignIn == "" && f.SignInTo == "" {
		return nil
	}
	s := &runnerapi.SignIn{Secret: f.SignInTo}
	for _, word := range Words(f.SignIn) {
		if group, is := strings.CutPrefix(word, groupPrefix); is {
			s.Groups = append(s.Groups, group)
		} else {
			s.Emails = append(s.Emails, word)
		}
	}
	return s
}
