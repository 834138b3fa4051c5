package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Of returns the object that creates the App's pods.
func Of(a *v1alpha1.App) (client.Object, error) { return patchedOne(a, of(a)) }

func of(a *v1alpha1.App) client.Object {
	switch a.Spec.Type {
	case runnerapi.TypeStatefulSet:
		return statefulSet(a)
	case runnerapi.TypeDaemonSet:
		return daemonSet(a)
	case runnerapi.TypeJob:
		return job(a)
	case runnerapi.TypeCronJob:
		return cronJob(a)
	}
	return deployment(a)
}

func appsMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind}
}

func selectorOf(a *v1alpha1.App) *metav1.LabelSelector {
	if adopted := AdoptionOf(a).Selector; len(adopted) > 0 { // it cannot be changed
		return &metav1.LabelSelector{MatchLabels: adopted}
	}
	return &metav1.LabelSelector{MatchLabels: objectmeta.AppLabels(a.Name)}
}

// minReady returns how long a pod must run before it counts.
func minReady(a *v1alpha1.App) int32 {
	if a.Spec.Probes.Readiness == nil {
		return settleSeconds
	}
	return 0
}

// update returns the update settings of the spec, or empty ones.
func update(a *v1alpha1.App) runnerapi.Update { return ptr.Deref(a.Spec.Update, runnerapi.Update{}) }

// deployment returns a Deployment, which by default starts new pods before it stops old ones.
func deployment(a *v1alpha1.App) *appsv1.Deployment {
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if u := update(a); u.Strategy != "Recreate" {
		strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: amountOr(u.MaxUnavailable, "0"), MaxSurge: amountOr(u.MaxSurge, "25%"),
			},
		}
	}
	return &appsv1.Deployment{
		TypeMeta:   appsMeta("Deployment"),
		ObjectMeta: ChildMeta(a),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(wanted(a, nil)), Selector: selectorOf(a), Template: podTemplate(a),
			Strategy: strategy, MinReadySeconds: minReady(a),
			RevisionHistoryLimit:    new(int32(keptReplicaSets)),
			ProgressDeadlineSeconds: new(ptr.Deref(a.Spec.ProgressDeadline, progressDeadline)),
		},
	}
}

// statefulSet returns a StatefulSet. Its pods' volumes outlive it in every case, because their data
// cannot be recreated.
func statefulSet(a *v1alpha1.App) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		TypeMeta:   appsMeta("StatefulSet"),
		ObjectMeta: ChildMeta(a),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(wanted(a, nil)), Selector: selectorOf(a), Template: podTemplate(a),
			ServiceName: ptr.Deref(AdoptionOf(a).ServiceName, headlessName(a.Name)), MinReadySeconds: minReady(a),
			PodManagementPolicy:  appsv1.OrderedReadyPodManagement,
			UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			RevisionHistoryLimit: new(int32(keptReplicaSets)),
			VolumeClaimTemplates: claims(a),
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
}

func daemonSet(a *v1alpha1.App) *appsv1.DaemonSet {
	u := update(a)
	unavailable := "1"
	if surge := amount(u.MaxSurge); surge != nil && surge.String() != "0" && surge.String() != "0%" {
		unavailable = "0" // Kubernetes allows only one of them
	}
	return &appsv1.DaemonSet{
		TypeMeta:   appsMeta("DaemonSet"),
		ObjectMeta: ChildMeta(a),
		Spec: appsv1.DaemonSetSpec{
			Selector: selectorOf(a), Template: podTemplate(a), MinReadySeconds: minReady(a),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{
					MaxUnavailable: amountOr(u.MaxUnavailable, unavailable), MaxSurge: amountOr(u.MaxSurge, "0"),
				},
			},
			RevisionHistoryLimit: new(int32(keptReplicaSets)),
		},
	}
}

// Job returns the Job of an App of type Job.
func Job(a *v1alpha1.App) (*batchv1.Job, error) { return patchedOne(a, job(a)) }

func job(a *v1alpha1.App) *batchv1.Job {
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: ChildMeta(a),
		Spec:       jobSpec(a),
	}
}

func jobSpec(a *v1alpha1.App) batchv1.JobSpec {
	o := ptr.Deref(a.Spec.Job, runnerapi.JobOptions{})
	return batchv1.JobSpec{
		BackoffLimit: new(ptr.Deref(o.Retries, defaultRetries)), ActiveDeadlineSeconds: o.DeadlineSeconds,
		Completions: new(cmp.Or(o.Completions, 1)), Parallelism: new(cmp.Or(o.Parallelism, 1)),
		Template: podTemplate(a),
	}
}

func cronJob(a *v1alpha1.App) *batchv1.CronJob {
	s := ptr.Deref(a.Spec.Schedule, runnerapi.Schedule{})
	out := &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"},
		ObjectMeta: ChildMeta(a),
		Spec: batchv1.CronJobSpec{
			Schedule: s.Cron, TimeZone: new("Etc/UTC"), Suspend: new(s.Suspended),
			ConcurrencyPolicy:          batchv1.ForbidConcurrent,
			StartingDeadlineSeconds:    new(ptr.Deref(s.StartingDeadlineSeconds, startingDeadline)),
			SuccessfulJobsHistoryLimit: new(int32(keptRuns)), FailedJobsHistoryLimit: new(int32(keptRuns)),
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: objectmeta.AppLabels(a.Name), Annotations: map[string]string{objectmeta.Run: RunKey(a)},
				},
				Spec: jobSpec(a),
			},
		},
	}
	if s.Concurrency != "" {
		out.Spec.ConcurrencyPolicy = batchv1.ConcurrencyPolicy(s.Concurrency)
	}
	if s.TimeZone != "" {
		out.Spec.TimeZone = new(s.TimeZone)
	}
	if a.Spec.Job != nil {
		out.Spec.JobTemplate.Spec.TTLSecondsAfterFinished = a.Spec.Job.TTLSeconds
	}
	return out
}

// RunKey identifies a run of a Job by its spec and restarts. It does not depend on how this agent
// builds a Job: otherwise an agent of another version would run it again.
func RunKey(a *v1alpha1.App) string {
	spec := a.Spec.DeepCopy()
	spec.Replicas, spec.Schedule = nil, nil
	// How the agent treats the App is not a reason to run it again.
	spec.Paused, spec.Rollback, spec.RevisionHistoryLimit = nil, "", nil
	spec.RestartOn, spec.RightSizing = nil, nil
	if spec.Job != nil {
		spec.Job.TTLSeconds = nil
	}
	raw, _ := json.Marshal(spec) // of strings and numbers: it cannot fail
	sum := sha256.Sum256(append(raw, a.RestartedAt()...))
	return hex.EncodeToString(sum[:16])
}

// PipelineJob returns the Job for one of a Pipeline's jobs. Its pods belong to the App, so that
// logs, diagnosis and deletion find them as for any App.
func PipelineJob(a *v1alpha1.App, spec runnerapi.PipelineJob) (*batchv1.Job, error) {
	return patchedOne(a, pipelineJob(a, spec))
}

func pipelineJob(a *v1alpha1.App, spec runnerapi.PipelineJob) *batchv1.Job {
	alone := &v1alpha1.App{ObjectMeta: a.ObjectMeta, Spec: a.Spec.JobSpec(spec).AppSpec()}
	j := job(alone)
	j.Name = PipelineJobName(a, spec)
	j.Annotations = map[string]string{objectmeta.Run: RunKey(a)}
	return j
}

// PipelineJobName returns the name of the Job for one of a Pipeline's jobs.
func PipelineJobName(a *v1alpha1.App, spec runnerapi.PipelineJob) string {
	return a.Name + "-" + spec.Name
}
