package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// revisionOf returns a revision of an App, which a Runner made so long ago.
func revisionOf(a *v1alpha1.App, number int64, runner string, ago time.Duration) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: fmt.Sprintf("%s-%d", a.Name, number), Labels: objectmeta.AppLabels(a.Name), CreationTimestamp: metav1.NewTime(time.Now().Add(-ago)),
			Annotations:     map[string]string{objectmeta.ChangedBy: runner},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: a.Name, UID: a.UID, Controller: new(true)}},
		},
		Revision: number, Data: runtime.RawExtension{Raw: []byte(`{"image":"web:1"}`)},
	}
}

// TestOverview_Deploys has the newest revisions of all Apps.
func TestOverview_Deploys(t *testing.T) {
	web := app("shop", "web", failing, func(a *v1alpha1.App) { a.Status.Revision, a.Status.Healthy = 7, []int64{5} })
	api := app("shop", "api", func(a *v1alpha1.App) { a.UID = "2" })
	objects := []client.Object{web, api, revisionOf(api, 1, "", 90*time.Minute)}
	for n := int64(1); n <= 7; n++ {
		objects = append(objects, revisionOf(web, n, fmt.Sprint("ci-", n), time.Duration(9-n)*time.Hour))
	}
	body := newRig(t, objects...).get("/", http.StatusOK)
	_, table, found := strings.Cut(body, `aria-label="Last deploys"`)
	assert.True(t, found, body)
	table, _, _ = strings.Cut(table, "</table>")
	var rows []string
	for row := range strings.SplitSeq(table, "<tr>") {
		rows = append(rows, row)
	}
	rows = rows[2:] // after the heading
	assert.Len(t, rows, 5)
	for i, want := range [][]string{
		{"shop/api", ">1<", "Healthy", "kubectl"}, {"shop/web", ">7<", "Failed", "ci-7"}, {"shop/web", ">6<", "Not healthy", "ci-6"},
		{"shop/web", ">5<", "Healthy", "ci-5"}, {"shop/web", ">4<", "Not healthy", "ci-4"},
	} {
		for _, part := range want {
			assert.Contains(t, rows[i], part, i)
		}
	}
}

// TestOverview_Squares has one for each App, in the order of the states, up to a limit.
func TestOverview_Squares(t *testing.T) {
	objects := []client.Object{app("shop", "web", failing), app("shop", "idle", func(a *v1alpha1.App) { a.Spec.Replicas = new(int32(0)) })}
	for i := range maxSquares {
		objects = append(objects, app("shop", fmt.Sprintf("service-%03d", i)))
	}
	body := newRig(t, objects...).get("/", http.StatusOK)
	assert.Contains(t, body, `<ul class="squares"><li><a href="/apps/shop/web" class="bad"><span>shop/web: Failed</span></a><li><a href="/apps/shop/service-000"><span>shop/service-000: Healthy</span></a>`)
	assert.Contains(t, body, `<a href="/apps">2 more Apps</a>`)
	assert.NotContains(t, body, "shop/idle", "it is the last")
}

func TestOverview_Usage(t *testing.T) {
	r := newRig(t)
	assert.NotContains(t, r.get("/", http.StatusOK), "<meter", "the cluster has no nodes")
	r.facts.nodes = []runnerapi.Node{{Name: "node-1"}}
	r.facts.usage = kube.Facts{Pods: runnerapi.PodCount{Running: 37, Allocatable: 110}, CPU: runnerapi.ResourceFigure{Allocatable: 8000}}
	body := r.get("/", http.StatusOK)
	assert.Contains(t, body, `Pods: 37 of 110<br><meter min="0" max="110" value="37"`)
	assert.Contains(t, body, "CPU and memory are unknown")
	r.facts.usage.CPU.Used, r.facts.usage.Memory = new(int64(2500)), runnerapi.ResourceFigure{Allocatable: 16 << 30, Used: new(int64(9 << 30))}
	body = r.get("/", http.StatusOK)
	assert.Contains(t, body, `CPU: 2.50 of 8.00 cores<br><meter min="0" max="8000" value="2500" aria-label="CPU in use">`)
	assert.Contains(t, body, `Memory: 9 Gi of 16 Gi<br><meter min="0" max="17179869184" value="9663676416"`)
	assert.NotContains(t, body, "unknown")
}
