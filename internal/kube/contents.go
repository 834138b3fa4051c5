package kube

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// pageSize bounds how much of a list is in memory at once.
const pageSize = 100

// Contents are what Apps use of Secrets and ConfigMaps, also of those that the agent did not make.
type Contents struct{ *Client }

// Contents returns what Apps use of Secrets and ConfigMaps.
func (k *Client) Contents() Contents { return Contents{k} }

// objects is the common part of Secrets and ConfigMaps: a Runner sets, reads and deletes those
// that came through the agent, and no others.
type objects[O client.Object] struct {
	*Client
	what  string // for messages
	kind  string
	fresh func() O
	// digest returns the digest of an object's content, as Runners read it.
	digest func(context.Context, O) (string, error)
}

// put creates the object or fills the existing one.
func (c objects[O]) put(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, fill func(O) error) (o O, err error) {
	if reserved := denylist.CheckName(c.kind, key.Name); reserved != nil {
		return o, reserved.WithField("path.name")
	}
	err = c.races.Run(ctx, c.kind+"/"+key.String(), func() error {
		o, err = c.tryPut(ctx, key, opts, fill)
		return err
	})
	return o, kubeproblem.From(err, "writing "+c.what+" "+key.String())
}

func (c objects[O]) tryPut(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, fill func(O) error) (O, error) {
	o := c.fresh()
	err := c.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, o)
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
		o = c.fresh()
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		o.SetLabels(objectmeta.Labels())
	case err != nil:
		return o, err
	case !objectmeta.IsManaged(o):
		return o, problem.Errorf(problem.Conflict,
			fmt.Sprintf("use another name, or delete the existing one (kubectl -n %s delete %s %s)", key.Namespace, strings.ToLower(c.kind), key.Name),
			"%s %s exists and was not created through the agent", c.what, key).WithField("path.name")
	}
	if !objectmeta.RecordCommand(o, opts.Command) {
		return o, nil
	}
	if err := c.unchanged(ctx, key, o, missing, opts.Digest); err != nil {
		return o, err
	}
	if err := fill(o); err != nil {
		return o, err
	}
	sign(o, opts.Caller)
	if missing {
		return o, c.writer(opts).Create(ctx, o, client.FieldOwner(objectmeta.FieldManager))
	}
	return o, c.writer(opts).Update(ctx, o, client.FieldOwner(objectmeta.FieldManager))
}

// unchanged refuses to replace another content than that from which the new one was made; made is
// empty for any.
func (c objects[O]) unchanged(ctx context.Context, key runnerapi.Key, o O, missing bool, made string) error {
	if made == "" {
		return nil
	}
	has := ""
	if !missing {
		var err error
		if has, err = c.digest(ctx, o); err != nil {
			return err
		}
	}
	return runnerapi.Unchanged(c.what+" "+key.String(), "digest", made, has)
}

// read does not reveal whether there is an object that was not created through the agent.
func (c objects[O]) read(ctx context.Context, key runnerapi.Key) (O, error) {
	o := c.fresh()
	if err := c.admit(ctx, key.Namespace); err != nil {
		return o, err
	}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return o, kubeproblem.From(err, "reading "+c.what+" "+key.String())
	}
	if err != nil || !objectmeta.IsManaged(o) {
		return o, problem.Errorf(problem.NotFound, "check the name, or write it first", "there is no %s %s created through the agent", c.what, key)
	}
	return o, nil
}

// remove deletes the object that exists now, not one that was created meanwhile.
func (c objects[O]) remove(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	err := c.races.Run(ctx, c.kind+"/"+key.String(), func() error {
		o, err := c.read(ctx, key)
		if err != nil {
			return err
		}
		if late, err := opts.Late(ctx); late || err != nil {
			return err
		}
		return c.writer(opts).Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})
	})
	return kubeproblem.From(err, "deleting "+c.what+" "+key.String())
}

// list passes on the objects of a namespace, a page at a time.
func (c objects[O]) list(ctx context.Context, namespace string, list client.ObjectList, each func(client.ObjectList) error) error {
	if err := c.admit(ctx, namespace); err != nil {
		return err
	}
	err := c.pages(ctx, list, each, client.InNamespace(namespace), client.MatchingLabels(objectmeta.Labels()))
	return kubeproblem.From(err, "listing "+c.what+"s of namespace "+namespace)
}

// pages reads a list in parts into the same memory.
func (k *Client) pages(ctx context.Context, list client.ObjectList, each func(client.ObjectList) error, opts ...client.ListOption) error {
	next := ""
	for {
		list.SetContinue("")
		if err := k.client.List(ctx, list, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		if err := each(list); err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
