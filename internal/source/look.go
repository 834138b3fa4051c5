package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// lookPatience bounds the marks of one source.
const lookPatience = 10 * time.Second

// Look is a request to look at a source: its Git server sent a push event to the control plane.
type Look struct {
	Number int64 // grows with each
	Source runnerapi.Key
	Runner string // that gave the Git server the address
	Commit string // as the Git server says; may be empty
}

// looks are the pushes that sources are still to be marked with.
type looks struct {
	wake wake.Signal

	mu           sync.Mutex
	waiting      []Look
	acknowledged int64
}

// LookAt makes the replica that leads look at sources soon. It does not block. The looks replace
// those of an earlier call.
func (k *Keeper) LookAt(list []Look) {
	k.looks.mu.Lock()
	defer k.looks.mu.Unlock()
	k.looks.waiting = list
	if len(list) > 0 {
		k.looks.wake.Raise()
	}
}

// Acknowledged returns the highest number of the looks whose sources were all marked since the
// last call; 0 for none.
func (k *Keeper) Acknowledged() (number int64) {
	k.looks.mu.Lock()
	defer k.looks.mu.Unlock()
	number, k.looks.acknowledged = k.looks.acknowledged, 0
	return number
}

// markLooks marks sources until ctx ends. One that cannot be marked comes again with the next
// heartbeat.
func (k *Keeper) markLooks(ctx context.Context) {
	for k.looks.wake.Wait(ctx) {
		k.looks.mu.Lock()
		list := k.looks.waiting
		k.looks.waiting = nil
		k.looks.mu.Unlock()
		highest, failed := int64(0), false
		for _, l := range list {
			if err := k.markLook(ctx, l); err != nil {
				k.config.Log.Warn().Err(err).Stringer("source", l.Source).Msg("failed to mark a source for a look; its interval brings the commit")
				failed = true
			}
			highest = max(highest, l.Number)
		}
		if failed {
			continue
		}
		k.looks.mu.Lock()
		k.looks.acknowledged = highest
		k.looks.mu.Unlock()
	}
}

// markLook marks one source, if the Runner may look at it. The mark is the look's number: that of
// another replica changes nothing.
func (k *Keeper) markLook(ctx context.Context, l Look) error {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	sources, err := k.cluster.on(ctx, l.Source.Namespace)
	if p, refused := errors.AsType[*problem.Error](err); refused && !p.Passing() {
		return nil // this agent does not manage the namespace
	}
	if err != nil {
		return err
	}
	u, err := sources.Get(ctx, l.Source.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil // there is none, or sources are not turned on
	}
	if err != nil {
		return err
	}
	o, err := read(u)
	if err != nil {
		return nil // another try would fail, too, and hold up the looks at other sources
	}
	number := strconv.FormatInt(l.Number, 10)
	if o.Annotations[objectmeta.Look] == number || l.Commit != "" && o.observed() && o.Status.Attempted == l.Commit {
		return nil
	}
	if err := k.reconciler.applier.mayLook(o, l.Runner); err != nil {
		k.config.Log.Info().Err(err).Stringer("source", l.Source).Str("runner", l.Runner).Msg("ignoring a push event: its webhook's Runner may not sync the source")
		return nil
	}
	k.config.Log.Debug().Stringer("source", l.Source).Str("commit", l.Commit).Msg("looking at a source: its Git server sent a push event")
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, objectmeta.Look, number)
	_, err = sources.Patch(ctx, o.Name, mergePatch, patch, metav1.PatchOptions{FieldManager: objectmeta.FieldManager})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// mayLook reports whether a Runner may have the agent look at a source: the one that put it, and
// those that may sync it.
func (a *applier) mayLook(o *object, runner string) error {
	if o.caller().Runner == runner {
		return nil
	}
	return a.decided(runnerapi.Intent{Command: syncSource, Access: runnerapi.Named, Runner: runner, Namespace: o.Namespace, Name: o.Name})
}
