package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// AllowChart returns the command by which the cluster's owner lets a Runner deploy a chart as a
// release. What the intent does not say is in capitals.
func AllowChart(i runnerapi.Intent) string {
	source := "--chart CHART"
	if i.Chart != nil {
		source = i.Chart.Source
	}
	return fmt.Sprintf("pipeops-agent chart allow %s -n %s --runner %s %s", i.Name, i.Namespace, i.Runner, source)
}

// release reports whether the rule's releases include that of the intent.
func (r Rule) release(i runnerapi.Intent) bool {
	return r.Releases == nil || slices.Contains(releaseCommands, i.Command) && matches(r.Releases, i.Name)
}

// chart checks the chart that a command deploys.
func (r ruling) chart(i runnerapi.Intent) error {
	if r.Charts == nil || !slices.Contains(chartCommands, i.Command) || i.Chart == nil && len(i.Objects) == 0 {
		return nil
	}
	is := runnerapi.ChartIntent{}
	if i.Chart != nil {
		is = *i.Chart
	}
	allowed := make([]string, len(r.Charts))
	for n, c := range r.Charts {
		if c.Name == is.Name && c.Version == is.Version && (c.Digest == "" || c.Digest == is.Digest) {
			return nil
		}
		allowed[n] = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Name, c.Version, c.Digest))
	}
	what := is.String()
	if slices.ContainsFunc(r.Charts, func(c Chart) bool { return c.Name == is.Name && c.Version == is.Version }) {
		what = "a chart of that name and version with the digest " + is.Digest
		if is.Digest == "" {
			what = "a revision that is kept without the digest: deploy the chart again"
		}
	}
	return r.orAllowChart(r.refuse("chart", "charts", "allows the chart %s, not %s", orNone(allowed, "no chart"), what))
}

// inCluster are kinds that grant rights in the whole cluster. A rule names them, or does not allow
// them: the rights that the owner gave the agent for one release are not for others.
var inCluster = []string{"ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io"}

// kind reports whether the rule allows an object of that kind and name.
func (r Rule) kind(o runnerapi.ObjectIntent) bool {
	unnamed := !slices.Contains(inCluster, o.Kind) && (!o.ClusterScoped || r.everywhere())
	return slices.ContainsFunc(r.Kinds, func(entry string) bool {
		kind, name, one := strings.Cut(entry, "/")
		return kind == anything && unnamed || strings.EqualFold(kind, o.Kind) && (!one || name == o.Name && name != "")
	})
}

// everywhere reports whether the rule is about what is in no namespace.
func (r Rule) everywhere() bool {
	return r.Namespaces == nil || slices.Contains(r.Namespaces, anything)
}

// bringing names an object for a refusal: by its scope or its name, where the rule allows others of
// the same kind.
func (r Rule) bringing(o runnerapi.ObjectIntent) string {
	if o.ClusterScoped && !r.everywhere() {
		return "the cluster-scoped " + o.Kind + "/" + o.Name
	}
	return o.Kind + r.named(o)
}

// named returns an object's name where the rule allows others of its kind.
func (r Rule) named(o runnerapi.ObjectIntent) string {
	prefix := strings.ToLower(o.Kind) + "/"
	if slices.ContainsFunc(r.Kinds, func(k string) bool { return strings.HasPrefix(strings.ToLower(k), prefix) }) {
		return "/" + o.Name
	}
	return ""
}

// orAllowChart adds to a refusal of a deploy the command that allows it.
func (r ruling) orAllowChart(err error) error {
	p := &problem.Error{}
	if r.intent.Command != putRelease || r.source == "" || !errors.As(err, &p) {
		return err
	}
	q := *p
	q.Fix += ", or run: " + AllowChart(r.intent)
	return &q
}

var (
	chartName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
	chartDigest = regexp.MustCompile(`^h1:[A-Za-z0-9+/]{43}=$`)
	objectKind  = regexp.MustCompile(`^[A-Za-z0-9.-]+/[^/\s*]+$`)
	rightDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// charts checks what a rule has about charts.
func (c *checking) charts(at string, r Rule) {
	c.patterns(at+".releases", r.Releases)
	if r.Charts != nil && !slices.ContainsFunc(chartCommands, func(name string) bool { return slices.Contains(r.Commands, name) }) {
		c.add(at+".charts", "bounds %s, of which the rule's commands have to name one", strings.Join(chartCommands, " and "))
	}
	for n, chart := range r.Charts {
		field := fmt.Sprintf("%s.charts[%d]", at, n)
		switch {
		case !chartName.MatchString(chart.Name):
			c.add(field+".name", "%.100q is not a name of a chart", chart.Name)
		case chart.Version == "" || strings.ContainsAny(chart.Version, " *^~<>="):
			c.add(field+".version", "%.100q is not one version such as 1.4.2", chart.Version)
		case chart.Digest != "" && !chartDigest.MatchString(chart.Digest):
			c.add(field+".digest", "%.100q is not a digest such as h1:…=, which pipeops-agent chart allow prints", chart.Digest)
		}
	}
	for n, digest := range r.Rights {
		if !rightDigest.MatchString(digest) {
			c.add(fmt.Sprintf("%s.rights[%d]", at, n), "%.100q is not a digest such as sha256:…, which pipeops-agent chart allow prints", digest)
		}
	}
	for n, kind := range r.Kinds {
		if strings.Contains(kind, "/") && !objectKind.MatchString(kind) {
			c.add(fmt.Sprintf("%s.kinds[%d]", at, n), "%.100q is neither a kind nor an object such as ClusterRole.rbac.authorization.k8s.io/web", kind)
		}
	}
}
