package cmdutil

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// nearTimeout bounds the search for what was meant.
	nearTimeout = 3 * time.Second
	// maxNear is how many namespaces a fix lists.
	maxNear = 5
)

// noApp matches the message of an App that is not there.
var noApp = regexp.MustCompile(`^there is no App ([^/ ]+)/(\S+)$`)

// near adds to the error of an App that is not there in which other namespaces one of its name is,
// of those that the Runner may see.
func near(ctx context.Context, t *Target, err error) error {
	known, ok := errors.AsType[*runnerapi.Error](err)
	if !ok || known.Code != runnerapi.CodeNotFound {
		return err
	}
	missing := noApp.FindStringSubmatch(known.Detail)
	if missing == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nearTimeout)
	defer cancel()
	apps, failed := t.Apps().List(ctx, "")
	if failed != nil {
		return err // the fix stays general
	}
	var flags []string
	for _, app := range apps {
		if app.Name == missing[2] && len(flags) < maxNear {
			flags = append(flags, "-n "+app.Namespace)
		}
	}
	if len(flags) > 0 {
		known.Fix = "an App of this name is in another namespace: add " + strings.Join(flags, " or ")
	}
	return err
}
