package runnerapi

import (
	"fmt"
	"strings"
)

// Warnings returns what is accepted but does otherwise than it is written. In command, args and the
// values of variables, $$ stands for one $, and $(NAME) for a variable
// (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables).
// $$(NAME) is taken as meant. The ingress may have annotations that the gateway ignores.
func (s AppSpec) Warnings() []string {
	var w dollars
	w.container("", s.Command, s.Args, s.Env)
	for n, c := range s.InitContainers {
		w.container(fmt.Sprintf("initContainers[%d].", n), c.Command, c.Args, c.Env)
	}
	for n, j := range s.Jobs {
		w.container(fmt.Sprintf("jobs[%d].", n), j.Command, j.Args, j.Env)
	}
	if s.Ingress != nil {
		w = append(w, ReadRouteAnnotations(s.Ingress.Annotations).Warnings...)
	}
	return w
}

// dollars gathers the texts that lose a $.
type dollars []string

func (w *dollars) container(at string, command, args []string, env []EnvVar) {
	for n, text := range command {
		w.text(fmt.Sprintf("%scommand[%d]", at, n), text)
	}
	for n, text := range args {
		w.text(fmt.Sprintf("%sargs[%d]", at, n), text)
	}
	for n, v := range env {
		w.text(fmt.Sprintf("%senv[%d].value (%s)", at, n, v.Name), v.Value)
	}
}

// shown bounds how much of a text a warning shows, in bytes.
const shown = 80

func (w *dollars) text(field, text string) {
	if !strings.Contains(strings.ReplaceAll(text, "$$(", ""), "$$") {
		return
	}
	runs := strings.ReplaceAll(text, "$$", "$")
	if len(runs) > shown {
		runs = strings.ToValidUTF8(runs[:shown], "") + "…"
	}
	*w = append(*w, fmt.Sprintf("%s runs as %q: Kubernetes takes $$ for one $; write $$$$ for two", field, runs))
}
