package composefile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// volumeSize is what each pod gets of a named volume: Compose files have no size.
const volumeSize = "1Gi"

// conversion turns one service into an App.
type conversion struct {
	service     types.ServiceConfig
	project     *types.Project
	volumeUsers map[string][]string

	out   App
	wrong []error
}

func (c *conversion) cannot(field, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("services.%s.%s: %s", c.service.Name, field, fmt.Sprintf(format, args...)))
}

func (c *conversion) note(format string, args ...any) {
	c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, args...))
}

func (c *conversion) app() App {
	s, spec := c.service, &c.out.Spec
	if c.out.Name = appName(s.Name); c.out.Name != s.Name {
		c.note("the App is called %s: names have only a-z, 0-9 and -", c.out.Name)
	}
	c.fields()
	c.meaning()
	switch {
	case s.Image == "" && s.Build != nil:
		c.cannot("image", "is missing, and the service is built from %s: build the image, push it, and name it here", s.Build.Context)
	case s.Image == "":
		c.cannot("image", "is missing")
	}
	if s.Privileged {
		c.cannot("privileged", "an App cannot be privileged")
	}
	spec.Image, spec.Command, spec.Args = s.Image, literal(s.Entrypoint), literal(s.Command)
	c.environment()
	c.ports()
	c.volumes()
	c.resources()
	c.health()
	c.security()
	if s.Scale != nil || s.Deploy != nil && s.Deploy.Replicas != nil {
		spec.Replicas = new(int32(s.GetScale())) //nolint:gosec // the App's own bounds follow
	}
	if s.StopGracePeriod != nil {
		spec.GraceSeconds = new(int64(time.Duration(*s.StopGracePeriod).Seconds()))
	}
	return c.out
}

// literal returns words in which Kubernetes expands no variable: Compose has expanded its own.
func literal(words []string) []string {
	out := make([]string, 0, len(words))
	for _, word := range words {
		out = append(out, escaped(word))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func escaped(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func (c *conversion) environment() {
	var unset, secrets []string
	for _, name := range slices.Sorted(maps.Keys(c.service.Environment)) {
		value := c.service.Environment[name]
		if value == nil {
			unset = append(unset, name)
			continue
		}
		if isSecret(name) && *value != "" {
			secrets = append(secrets, name)
		}
		c.out.Spec.Env = append(c.out.Spec.Env, runnerapi.EnvVar{Name: name, Value: escaped(*value)})
	}
	if len(unset) > 0 {
		c.note("not set in your environment, and left out: %s", strings.Join(unset, ", "))
	}
	if len(secrets) > 0 {
		c.note("the spec holds in plain text: %s; put them into a Secret (pipeops-runner secret set) and deploy with --env-secret", strings.Join(secrets, ", "))
	}
}

// isSecret reports whether a variable is called like a secret.
func isSecret(name string) bool {
	name = strings.ToUpper(name)
	return !strings.HasSuffix(name, "_FILE") && slices.ContainsFunc([]string{"PASSWORD", "PASSWD", "SECRET", "TOKEN", "APIKEY", "API_KEY", "PRIVATE_KEY"},
		func(word string) bool { return strings.Contains(name, word) })
}

func (c *conversion) ports() {
	add := func(field string, port uint32, protocol string) {
		if port == 0 || port > 65535 {
			c.cannot(field, "name one port, not a range")
			return
		}
		p := runnerapi.Port{Port: int32(port), Protocol: strings.ToUpper(protocol)}
		if p.Protocol == "TCP" {
			p.Protocol = ""
		}
		if !slices.ContainsFunc(c.out.Spec.Ports, func(o runnerapi.Port) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
			c.out.Spec.Ports = append(c.out.Spec.Ports, p)
		}
	}
	// The first TCP port is the one that is public.
	published := slices.Clone(c.service.Ports)
	slices.SortStableFunc(published, func(a, b types.ServicePortConfig) int {
		return cmp.Compare(visibility(b), visibility(a))
	})
	for _, p := range published {
		add("ports", p.Target, p.Protocol)
		c.out.Published = c.out.Published || visibility(p) == isPublic
		if p.Published != "" && visibility(p) == isLocal {
			c.note("port %d is published to this machine alone: --public leaves it out", p.Target)
		}
	}
	for _, text := range c.service.Expose {
		number, protocol, _ := strings.Cut(text, "/")
		port, _ := strconv.ParseUint(number, 10, 16)
		add("expose", uint32(port), protocol)
	}
	if ports := c.out.Spec.Ports; len(ports) > 1 {
		for i := range ports {
			ports[i].Name = strings.ToLower("p" + strconv.Itoa(int(ports[i].Port)) + ports[i].Protocol)
		}
	}
	if len(c.out.Spec.Ports) == 0 && c.isUsed() {
		c.note("no port: other Apps reach it by its name only if expose or ports names one")
	}
}

// How far a port is published.
const (
	isHidden = iota
	isLocal
	isPublic
)

// visibility returns how far a TCP port is published.
func visibility(p types.ServicePortConfig) int {
	address, err := netip.ParseAddr(p.HostIP)
	switch {
	case p.Published == "" || p.Protocol == "udp":
		return isHidden
	case p.HostIP == "localhost", err == nil && address.IsLoopback():
		return isLocal
	}
	return isPublic
}

// isUsed reports whether another service depends on this one.
func (c *conversion) isUsed() bool {
	for _, other := range c.project.Services {
		if _, uses := other.DependsOn[c.service.Name]; uses {
			return true
		}
	}
	return false
}

func (c *conversion) volumes() {
	for i, v := range c.service.Volumes {
		field := fmt.Sprintf("volumes[%d]", i)
		switch {
		case v.Type == types.VolumeTypeTmpfs:
			c.scratch(v.Target)
		case v.Type == types.VolumeTypeBind:
			c.cannot(field, "%s is a file or directory of this machine, which a pod does not have: put it into the image or a config map", v.Source)
		case v.Type != types.VolumeTypeVolume:
			c.cannot(field, "volumes of type %s are not known", v.Type)
		case v.Source == "":
			c.add(runnerapi.Volume{MountPath: v.Target, EmptyDir: &runnerapi.EmptyDir{}})
		case bool(c.project.Volumes[v.Source].External):
			c.cannot(field, "%s is an external volume, which the cluster does not have", v.Source)
		case len(c.volumeUsers[v.Source]) > 1:
			c.cannot(field, "%s is shared by %s: a volume belongs to one App", v.Source, strings.Join(c.volumeUsers[v.Source], ", "))
		default:
			c.out.Spec.Type = runnerapi.TypeStatefulSet
			c.add(runnerapi.Volume{MountPath: v.Target, ReadOnly: v.ReadOnly, Claim: &runnerapi.VolumeClaim{Size: volumeSize}}, v.Source)
			c.note("volume %s has %s: set volumes[].claim.size in the App's file for another size", v.Source, volumeSize)
		}
	}
	for _, path := range c.service.Tmpfs {
		path, _, _ = strings.Cut(path, ":")
		c.scratch(path)
	}
}

func (c *conversion) scratch(path string) {
	c.add(runnerapi.Volume{MountPath: path, EmptyDir: &runnerapi.EmptyDir{Memory: true}})
}

// maxVolumeName bounds the name of a volume.
const maxVolumeName = 40

// add adds a volume, by the name that it has or a number.
func (c *conversion) add(v runnerapi.Volume, name ...string) {
	v.Name = fmt.Sprintf("volume-%d", len(c.out.Spec.Volumes))
	if len(name) > 0 && len(appName(name[0])) <= maxVolumeName {
		v.Name = appName(name[0])
	}
	c.out.Spec.Volumes = append(c.out.Spec.Volumes, v)
}

func (c *conversion) resources() {
	s, r := c.service, &c.out.Spec.Resources
	r.Limits = runnerapi.ResourceAmounts{CPU: cpu(s.CPUS), Memory: memory(s.MemLimit)}
	r.Requests.Memory = memory(s.MemReservation)
	c.gpus("gpus", s.Gpus)
	if s.Deploy == nil {
		return
	}
	for from, to := range map[*types.Resource]*runnerapi.ResourceAmounts{s.Deploy.Resources.Limits: &r.Limits, s.Deploy.Resources.Reservations: &r.Requests} {
		if from == nil {
			continue
		}
		if len(from.GenericResources) > 0 {
			c.cannot("deploy.resources", "an App has no generic resources; leave them out")
		}
		c.gpus("deploy.resources.reservations.devices", from.Devices)
		if from.NanoCPUs > 0 {
			to.CPU = cpu(from.NanoCPUs.Value())
		}
		if from.MemoryBytes > 0 {
			to.Memory = memory(from.MemoryBytes)
		}
	}
}

func cpu(cores float32) string {
	if cores <= 0 {
		return ""
	}
	return strconv.Itoa(max(1, int(cores*1000+0.5))) + "m"
}

func memory(bytes types.UnitBytes) string {
	switch {
	case bytes <= 0:
		return ""
	case bytes%(1<<20) == 0:
		return strconv.FormatInt(int64(bytes>>20), 10) + "Mi"
	}
	return strconv.FormatInt(int64(bytes), 10)
}

// health makes the health check the probe by which a pod gets traffic. Compose, too, restarts no
// container that is unhealthy.
func (c *conversion) health() {
	h := c.service.HealthCheck
	if h == nil || h.Disable || len(h.Test) == 0 || h.Test[0] == "NONE" {
		return
	}
	probe := &runnerapi.Probe{Exec: slices.Clone(h.Test[1:])} // in which Kubernetes expands nothing
	if h.Test[0] == "CMD-SHELL" {
		probe.Exec = append([]string{"/bin/sh", "-c"}, probe.Exec...)
	}
	probe.PeriodSeconds, probe.TimeoutSeconds = seconds(h.Interval, 3600), seconds(h.Timeout, 600)
	if h.Retries != nil {
		probe.FailureThreshold = int32(min(*h.Retries, 1000))
	}
	c.out.Spec.Probes.Readiness = probe
}

// seconds returns whole seconds, from 1 to most; 0 for none.
func seconds(d *types.Duration, most int32) int32 {
	if d == nil || *d <= 0 {
		return 0
	}
	return min(most, max(1, int32(time.Duration(*d).Seconds())))
}

func (c *conversion) security() {
	s := c.service
	var security runnerapi.Security
	if s.User != "" {
		user, group, _ := strings.Cut(s.User, ":")
		uid, err := strconv.ParseInt(user, 10, 64)
		if err != nil {
			c.cannot("user", "%q is a name: give its number", user)
		} else {
			security.RunAsUser, security.AllowRoot = &uid, uid == 0
		}
		if group != "" {
			gid, err := strconv.ParseInt(group, 10, 64)
			if err != nil {
				c.cannot("user", "%q is a name: give its number", group)
			}
			security.RunAsGroup = &gid
		}
	}
	security.ReadOnlyRootFilesystem = s.ReadOnly
	for _, capability := range s.CapAdd {
		security.AddCapabilities = append(security.AddCapabilities, strings.TrimPrefix(strings.ToUpper(capability), "CAP_"))
	}
	if c.out.Spec.Type == runnerapi.TypeStatefulSet && security.RunAsUser != nil && security.RunAsGroup == nil {
		security.FSGroup = security.RunAsUser // so that it may write to its volume
	}
	if s.User != "" || s.ReadOnly || len(s.CapAdd) > 0 {
		c.out.Spec.Security = &security
	}
}
