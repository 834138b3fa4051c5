package runnerapi

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Rule is a rule about a spec that struct tags cannot express: once in Go, for the API and the
// reconciler, and once in CEL, for the cluster.
type Rule struct {
	Field   string // JSON path below the spec
	Message string
	CEL     string // over the spec as self
	Holds   func(AppSpec) bool
}

// SpecRules returns all of them. The CustomResourceDefinition is made with the same.
func SpecRules() []Rule {
	return slices.Concat(workloadRules, ingressRules, updateRules, mountRules, placementRules, podRules)
}

func (s AppSpec) is(types ...AppType) bool {
	t := cmp.Or(s.Type, TypeDeployment)
	return slices.Contains(types, t)
}

var workloadRules = []Rule{
	{
		"autoscaling", "only a Deployment or StatefulSet scales",
		`!has(self.autoscaling) || self.type in ['Deployment', 'StatefulSet']`,
		func(s AppSpec) bool { return s.Autoscaling == nil || s.Type.Scales() },
	},
	{
		"autoscaling.min", "min is more than max",
		`!has(self.autoscaling) || self.autoscaling.min <= self.autoscaling.max`,
		func(s AppSpec) bool { return s.Autoscaling == nil || s.Autoscaling.Min <= s.Autoscaling.Max },
	},
	{
		"schedule", "a CronJob needs a schedule, and nothing else has one",
		`has(self.schedule) == (self.type == 'CronJob')`,
		func(s AppSpec) bool { return (s.Schedule != nil) == (s.Type == TypeCronJob) },
	},
	{
		"job", "only a Job, CronJob or Pipeline has these options",
		`!has(self.job) || self.type in ['Job', 'CronJob', 'Pipeline']`,
		func(s AppSpec) bool { return s.Job == nil || s.Type.Runs() },
	},
	{
		"jobs", "a Pipeline needs jobs, and nothing else has them",
		`(has(self.jobs) && self.jobs.size() > 0) == (self.type == 'Pipeline')`,
		func(s AppSpec) bool { return (len(s.Jobs) > 0) == (s.Type == TypePipeline) },
	},
	{
		"metrics", "Prometheus does not scrape a Job, CronJob or Pipeline, which end",
		`!has(self.metrics) || !(self.type in ['Job', 'CronJob', 'Pipeline'])`,
		func(s AppSpec) bool { return s.Metrics == nil || !s.Type.Runs() },
	},
	{
		"command", "each job of a Pipeline has a command and arguments of its own",
		`self.type != 'Pipeline' || !has(self.command) && !has(self.args)`,
		func(s AppSpec) bool { return s.Type != TypePipeline || len(s.Command)+len(s.Args) == 0 },
	},
	{
		"job.completions", "a job of a Pipeline is one pod",
		`self.type != 'Pipeline' || !has(self.job) || !has(self.job.completions) && !has(self.job.parallelism)`,
		func(s AppSpec) bool {
			return s.Type != TypePipeline || s.Job == nil || s.Job.Completions == 0 && s.Job.Parallelism == 0
		},
	},
	{
		"rightSizing", "the jobs of a Pipeline are too different to be measured together",
		`self.type != 'Pipeline' || !has(self.rightSizing)`,
		func(s AppSpec) bool { return s.Type != TypePipeline || s.RightSizing == nil },
	},
	{
		"ports", "a Job, CronJob or Pipeline serves nothing and has no ports",
		`!has(self.ports) || self.ports.size() == 0 || !(self.type in ['Job', 'CronJob', 'Pipeline'])`,
		func(s AppSpec) bool { return len(s.Ports) == 0 || !s.Type.Runs() },
	},
	{
		"progressDeadlineSeconds", "only a Deployment has a deadline for its rollout",
		`!has(self.progressDeadlineSeconds) || self.type == 'Deployment'`,
		func(s AppSpec) bool { return s.ProgressDeadline == nil || s.is(TypeDeployment) },
	},
	{
		"disruption", "only a Deployment or StatefulSet has a disruption budget",
		`!has(self.disruption) || self.type in ['Deployment', 'StatefulSet']`,
		func(s AppSpec) bool { return s.Disruption == nil || s.Type.Scales() },
	},
	{
		"disruption", "exactly one of minAvailable and maxUnavailable must be set",
		`!has(self.disruption) || has(self.disruption.minAvailable) != has(self.disruption.maxUnavailable)`,
		func(s AppSpec) bool {
			return s.Disruption == nil || (s.Disruption.MinAvailable != "") != (s.Disruption.MaxUnavailable != "")
		},
	},
}

const (
	hasSurge       = `has(self.update) && has(self.update.maxSurge)`
	hasUnavailable = `has(self.update) && has(self.update.maxUnavailable)`
	zeroPattern    = `^0+%?$`
	zeroSurge      = `self.update.maxSurge.matches('` + zeroPattern + `')`
	zeroUnavail    = `self.update.maxUnavailable.matches('` + zeroPattern + `')`
)

var zero = regexp.MustCompile(zeroPattern)

var updateRules = []Rule{
	{
		"update", "a Job, CronJob or Pipeline is not updated but run again",
		`!has(self.update) || !(self.type in ['Job', 'CronJob', 'Pipeline'])`,
		func(s AppSpec) bool { return s.Update == nil || !s.Type.Runs() },
	},
	{
		"update.strategy", "only a Deployment can be recreated, and then maxUnavailable and maxSurge say nothing",
		`!has(self.update) || self.update.strategy != 'Recreate' || self.type == 'Deployment' && !has(self.update.maxSurge) && !has(self.update.maxUnavailable)`,
		func(s AppSpec) bool {
			return s.Update == nil || s.Update.Strategy != "Recreate" ||
				s.is(TypeDeployment) && s.Update.MaxSurge == "" && s.Update.MaxUnavailable == ""
		},
	},
	{
		"update", "a StatefulSet's pods are replaced one at a time: it has neither maxUnavailable nor maxSurge",
		`self.type != 'StatefulSet' || !(` + hasSurge + ` || ` + hasUnavailable + `)`,
		func(s AppSpec) bool {
			return s.Update == nil || !s.is(TypeStatefulSet) || s.Update.MaxSurge == "" && s.Update.MaxUnavailable == ""
		},
	},
	{
		"update", "nothing could ever be replaced: maxSurge is 0 and so is maxUnavailable",
		`!(self.type == 'Deployment' && ` + hasSurge + ` && ` + zeroSurge + ` && (!has(self.update.maxUnavailable) || ` + zeroUnavail + `)) && ` +
			`!(self.type == 'DaemonSet' && ` + hasUnavailable + ` && ` + zeroUnavail + ` && (!has(self.update.maxSurge) || ` + zeroSurge + `))`,
		func(s AppSpec) bool {
			u := s.Update
			switch {
			case u == nil:
				return true
			case s.is(TypeDeployment):
				return !zero.MatchString(u.MaxSurge) || u.MaxUnavailable != "" && !zero.MatchString(u.MaxUnavailable)
			case s.is(TypeDaemonSet):
				return !zero.MatchString(u.MaxUnavailable) || u.MaxSurge != "" && !zero.MatchString(u.MaxSurge)
			}
			return true
		},
	},
	{
		"update", "a DaemonSet takes either maxUnavailable or maxSurge",
		`!(self.type == 'DaemonSet' && ` + hasSurge + ` && ` + hasUnavailable + ` && !` + zeroSurge + ` && !` + zeroUnavail + `)`,
		func(s AppSpec) bool {
			u := s.Update
			return u == nil || !s.is(TypeDaemonSet) || u.MaxSurge == "" || u.MaxUnavailable == "" ||
				zero.MatchString(u.MaxSurge) || zero.MatchString(u.MaxUnavailable)
		},
	},
}

// ReservedPrefix is the prefix of the names of volumes that the agent itself creates.
const ReservedPrefix = "pipeops-"

var mountRules = []Rule{
	{
		"volumes", "exactly one of emptyDir, claim and existingClaim must be set",
		`!has(self.volumes) || self.volumes.all(v, [has(v.emptyDir), has(v.claim), has(v.existingClaim)].filter(x, x).size() == 1)`,
		func(s AppSpec) bool {
			return every(s.Volumes, func(v Volume) bool { return count(v.EmptyDir != nil, v.Claim != nil, v.ExistingClaim != "") == 1 })
		},
	},
	{
		"volumes", "only a StatefulSet has claims of its pods' own; name a claim that is there in existingClaim",
		`!has(self.volumes) || self.type == 'StatefulSet' || self.volumes.all(v, !has(v.claim))`,
		func(s AppSpec) bool {
			return s.is(TypeStatefulSet) || every(s.Volumes, func(v Volume) bool { return v.Claim == nil })
		},
	},
	{
		"volumes", "names that begin with " + ReservedPrefix + " are the agent's",
		`!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('` + ReservedPrefix + `'))`,
		func(s AppSpec) bool {
			return every(s.Volumes, func(v Volume) bool { return !strings.HasPrefix(v.Name, ReservedPrefix) })
		},
	},
	{
		"files", "exactly one of secret and configMap must be set",
		`!has(self.files) || self.files.all(f, has(f.secret) != has(f.configMap))`,
		func(s AppSpec) bool {
			return every(s.Files, func(f File) bool { return (f.Secret != nil) != (f.ConfigMap != nil) })
		},
	},
	{
		"volumes", "two volumes, or a volume and a file, are mounted at the same path",
		`!has(self.volumes) || self.volumes.all(v, self.volumes.exists_one(o, o.mountPath == v.mountPath) && ` +
			`(!has(self.files) || !self.files.exists(f, f.path == v.mountPath)))`,
		func(s AppSpec) bool {
			return distinct(s.Volumes, func(v Volume) string { return v.MountPath }) && every(s.Volumes, func(v Volume) bool {
				return every(s.Files, func(f File) bool { return f.Path != v.MountPath })
			})
		},
	},
}

// Keys of labels and annotations; the values of labels.
const (
	metaKeyPattern    = `^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`
	labelValuePattern = `^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`
	ownKeyPrefix      = "pipeops.io/"
	managedByKey      = "app.kubernetes.io/managed-by"
)

var (
	metaKey    = regexp.MustCompile(metaKeyPattern)
	labelValue = regexp.MustCompile(labelValuePattern)
)

// metaRule is about keys that may not be the agent's own, with exceptions.
func metaRule(field, of, guard string, get func(AppSpec) map[string]string, except ...string) Rule {
	return Rule{
		field, "a key is not a Kubernetes " + of + " key, or one of the agent's own",
		guard + `self.` + field + `.all(k, k.matches('` + metaKeyPattern + `') && (!k.startsWith('` + ownKeyPrefix + `') || k in ['` +
			strings.Join(except, `', '`) + `']) && k != '` + managedByKey + `')`,
		func(s AppSpec) bool {
			for k := range get(s) {
				own := strings.HasPrefix(k, ownKeyPrefix) && !slices.Contains(except, k)
				if !metaKey.MatchString(k) || own || k == managedByKey {
					return false
				}
			}
			return true
		},
	}
}

var placementRules = []Rule{
	{
		"nodeSelector", "a key or value is not that of a Kubernetes label",
		`!has(self.nodeSelector) || self.nodeSelector.all(k, k.matches('` + metaKeyPattern + `') && self.nodeSelector[k].matches('` + labelValuePattern + `'))`,
		func(s AppSpec) bool {
			for k, v := range s.NodeSelector {
				if !metaKey.MatchString(k) || !labelValue.MatchString(v) {
					return false
				}
			}
			return true
		},
	},
	{
		"tolerations", "operator Exists takes no value, and operator Equal needs a key",
		`!has(self.tolerations) || self.tolerations.all(t, has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '')`,
		func(s AppSpec) bool {
			return every(s.Tolerations, func(t Toleration) bool {
				if t.Operator == "Exists" {
					return t.Value == ""
				}
				return t.Key != ""
			})
		},
	},
	{
		"tolerations", "tolerationSeconds needs effect NoExecute",
		`!has(self.tolerations) || self.tolerations.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')`,
		func(s AppSpec) bool {
			return every(s.Tolerations, func(t Toleration) bool { return t.Seconds == nil || t.Effect == "NoExecute" })
		},
	},
}

var podRules = []Rule{
	metaRule("podLabels", "label", `!has(self.podLabels) || `, func(s AppSpec) map[string]string { return s.PodLabels }),
	metaRule("podAnnotations", "annotation", `!has(self.podAnnotations) || `, func(s AppSpec) map[string]string { return s.PodAnnotations }),
	metaRule("ingress.annotations", "annotation", `!has(self.ingress) || !has(self.ingress.annotations) || `, func(s AppSpec) map[string]string {
		if s.Ingress == nil {
			return nil
		}
		return s.Ingress.Annotations
	}, AnnotationAnswer, AnnotationMode),
	{
		"podLabels", "a value is not a Kubernetes label value",
		`!has(self.podLabels) || self.podLabels.all(k, self.podLabels[k].matches('` + labelValuePattern + `'))`,
		func(s AppSpec) bool {
			for _, v := range s.PodLabels {
				if !labelValue.MatchString(v) {
					return false
				}
			}
			return true
		},
	},
	{
		"security.runAsUser", "user 0 is root, which allowRoot has to allow",
		`!has(self.security) || !has(self.security.runAsUser) || self.security.runAsUser != 0 || has(self.security.allowRoot) && self.security.allowRoot`,
		func(s AppSpec) bool {
			return s.Security == nil || s.Security.RunAsUser == nil || *s.Security.RunAsUser != 0 || s.Security.AllowRoot
		},
	},
}

func (p Port) tcp() bool { return p.Protocol == "" || p.Protocol == "TCP" }

func (h IngressHost) prefix() string {
	return cmp.Or(h.Path, "/")
}

func every[T any](all []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(all, func(x T) bool { return !holds(x) })
}

// distinct reports whether no two have the same key.
func distinct[T any](all []T, key func(T) string) bool {
	seen := map[string]bool{}
	for _, x := range all {
		if seen[key(x)] {
			return false
		}
		seen[key(x)] = true
	}
	return true
}
