package components

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const runAgain = "correct that, and run it again: it continues from there"

var (
	// ofOthers is what Helm says of an object that no release of this name has made.
	ofOthers = regexp.MustCompile(`(\w+ "[^"]+" in namespace "[^"]*") exists and cannot be imported`)
	// terminating is what the API server says of a namespace that is being deleted.
	terminating = regexp.MustCompile(`namespace (\S+) because it is being terminated`)
	// noKind is what Helm says of an object whose kind the cluster does not serve.
	noKind = regexp.MustCompile(`no matches for kind "([^"]+)" in version "([^"]+)"`)
	// ofHelm are the errors of a chart with these values, before anything was written.
	ofHelm = []string{`executing "`, "execution error at", "error calling", "parse error", "YAML parse error", "error converting YAML", "unable to build kubernetes objects"}
)

// explained turns an error of Helm into a problem, with a cause and a fix.
func explained(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.Errorf(problem.Timeout, "run it again: it continues from there", "the objects could not be applied within %s", applyTimeout)
	}
	if found := ofOthers.FindStringSubmatch(err.Error()); found != nil {
		return problem.Errorf(problem.Conflict, "set the mode of the component to never, or remove that object",
			"%s is there, and belongs to another client", strings.TrimSuffix(found[1], ` in namespace ""`))
	}
	if found := noKind.FindStringSubmatch(err.Error()); found != nil {
		return problem.Errorf(problem.Conflict, definitionsFix, "the cluster does not serve the kind %s of %s, which the chart needs", found[1], found[2])
	}
	result := translated(err, "applying the chart")
	if known, ok := errors.AsType[*problem.Error](result); ok {
		known.Fix = cmp.Or(known.Fix, runAgain)
		return result
	}
	for _, words := range ofHelm {
		if strings.Contains(err.Error(), words) {
			return problem.Errorf(problem.Invalid, "correct the values in the file of settings", "the chart cannot be rendered with these values: %v", err)
		}
	}
	return problem.Errorf(problem.Internal, runAgain, "applying the chart: %v", err)
}

// translated turns an error of the Kubernetes API into a problem. A right that is missing is one of
// the person who runs this, and not of the agent.
func translated(err error, doing string) error {
	if err != nil {
		if found := terminating.FindStringSubmatch(err.Error()); found != nil {
			return problem.Errorf(problem.Busy, "wait until it is gone, and run it again; its status names what holds it up: kubectl get namespace "+found[1]+" -o yaml",
				"%s: namespace %s is being deleted", doing, found[1])
		}
	}
	result := kubeproblem.From(err, doing)
	if !problem.Is(result, problem.Forbidden) || !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "quota") {
		return result
	}
	return problem.Errorf(problem.Forbidden, "run it with the rights of an administrator of the cluster", "%s: %v", doing, err)
}
