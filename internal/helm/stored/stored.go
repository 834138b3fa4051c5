// Package stored finds and reads Helm's releases, which are Secrets of their namespace. Helm's own
// driver finds them by labels, which any Secret can have, and unpacks them without a limit: 679 KiB
// of gzip stand for as many MiB. It also reads all revisions where it needs one.
package stored

import (
	"context"
	"log/slog"
	"strconv"

	ri "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
)

// Type is the type of the Secrets in which Helm 3 and 4 keep releases. A Secret's type never
// changes.
const Type corev1.SecretType = "helm.sh/release.v1"

// The labels by which Helm finds its Secrets.
const (
	owner       = "owner"
	name        = "name"
	version     = "version"
	status      = "status"
	ownedByHelm = "helm"
)

// Key returns the name of the Secret in which Helm keeps a revision.
func Key(release string, revision int) string {
	return storage.HelmStorageType + "." + release + ".v" + strconv.Itoa(revision)
}

// Find returns the Secrets of revisions, without their content, which may have megabytes each. It
// requires Helm's type and name of such a Secret besides the labels. A selector may be empty.
func Find(ctx context.Context, api metadata.Interface, namespace string, selector labels.Set) ([]metav1.PartialObjectMetadata, error) {
	list, err := api.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Merge(selector, labels.Set{owner: ownedByHelm}).String(),
		FieldSelector: fields.OneTermEqualSelector("type", string(Type)).String(),
	})
	if err != nil {
		return nil, err
	}
	var found []metav1.PartialObjectMetadata
	for _, m := range list.Items {
		if n := revision(m.Labels); m.Labels[name] != "" && m.Name == Key(m.Labels[name], n) {
			found = append(found, m)
		}
	}
	return found, nil
}

// revision returns the number of a revision; 0 for none, which Helm does not give.
func revision(labels map[string]string) int {
	n, err := strconv.Atoi(labels[version])
	if err != nil {
		return 0
	}
	return n
}

// Driver is Helm's driver for a namespace, within the limits of this package.
type Driver struct {
	*driver.Secrets
	api       metadata.Interface
	secrets   corev1client.SecretInterface
	namespace string
	log       slog.Handler
	admit     Admit
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. It makes no requests. admit is asked before a revision is unpacked; it is
// nil where the caller has reserved the memory.
func New(api metadata.Interface, core corev1client.SecretsGetter, namespace string, log slog.Handler, admit Admit) *Driver {
	secrets := core.Secrets(namespace)
	return &Driver{reading(bounded{SecretInterface: secrets}, log), api, secrets, namespace, log, admit}
}

// reading returns Helm's own driver, which reads one revision after the other.
func reading(secrets bounded, log slog.Handler) *driver.Secrets {
	d := driver.NewSecrets(secrets)
	d.SetLogger(log)
	return d
}

// Get implements driver.Driver.
func (d *Driver) Get(key string) (ri.Releaser, error) { return d.read(key, nil) }

// read reads a revision. left is what all that the caller keeps may still have, in bytes; nil for
// any size.
func (d *Driver) read(key string, left *int64) (ri.Releaser, error) {
	done := func() {}
	defer func() { done() }()
	return reading(bounded{d.secrets, left, d.admit, &done}, d.log).Get(key)
}

// List implements driver.Driver. It has one revision more in memory than the filter accepts.
func (d *Driver) List(filter func(ri.Releaser) bool) ([]ri.Releaser, error) {
	found, err := Find(context.Background(), d.api, d.namespace, nil)
	if err != nil {
		return nil, err
	}
	var all []ri.Releaser
	left := int64(maxTogether)
	for _, m := range found {
		before := left
		r, err := d.read(m.Name, &left)
		if err != nil {
			return nil, err
		}
		if !filter(r) {
			left = before
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

// Query implements driver.Driver. Helm's actions ask for a status to change what they find, and
// get it whole. Without a status they ask for a history: they read the newest revision, and of the
// others the number and the status, which is all that these have here.
func (d *Driver) Query(selector map[string]string) ([]ri.Releaser, error) {
	found, err := Find(context.Background(), d.api, d.namespace, selector)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, driver.ErrReleaseNotFound
	}
	newest := 0
	for _, m := range found {
		newest = max(newest, revision(m.Labels))
	}
	all := make([]ri.Releaser, 0, len(found))
	left := int64(maxTogether)
	for _, m := range found {
		if selector[status] == "" && revision(m.Labels) < newest {
			all = append(all, d.outline(m))
			continue
		}
		r, err := d.read(m.Name, &left)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// outline returns what the labels say of a revision.
func (d *Driver) outline(m metav1.PartialObjectMetadata) *release.Release {
	return &release.Release{
		Name: m.Labels[name], Namespace: d.namespace, Version: revision(m.Labels), Labels: m.Labels,
		Info: &release.Info{Status: common.Status(m.Labels[status])},
	}
}

// Delete implements driver.Driver. Unlike Helm's, it does not read what it deletes, and returns
// nothing of it: Helm's actions use none of that.
func (d *Driver) Delete(key string) (ri.Releaser, error) {
	err := d.secrets.Delete(context.Background(), key, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = driver.ErrReleaseNotFound
	}
	return &release.Release{}, err
}
