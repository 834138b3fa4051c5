package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestSender_NothingAfterEnd has an App that the cache still has while its end is being sent, and
// one that it has after that.
func TestSender_NothingAfterEnd(t *testing.T) {
	waiting := func(name string, uid types.UID) v1alpha1.App {
		return v1alpha1.App{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid},
			Status: v1alpha1.Status{Unannounced: []v1alpha1.Transition{{
				Announced: v1alpha1.Announced{Phase: runnerapi.PhaseHealthy, Generation: 3, Sequence: 5}, At: time.Now().Format(time.RFC3339),
			}}},
		}
	}
	goes, namesake := waiting("goes", "u3"), waiting("ended", "u4")
	goes.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	told := living([]v1alpha1.App{waiting("ended", "u1"), waiting("there", "u2"), goes, namesake}, []Event{{uid: "u1", Type: Removed}})
	var uids []types.UID
	for _, ev := range told {
		uids = append(uids, ev.uid)
	}
	assert.Equal(t, []types.UID{"u4", "u2"}, uids)
}

// TestCalls_CoverAllApps has more Apps than a call takes: each name is in the range of one call.
func TestCalls_CoverAllApps(t *testing.T) {
	var apps []v1alpha1.App
	for i := range maxBatch + 1 {
		apps = append(apps, v1alpha1.App{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("a%03d", i)},
			Status:     v1alpha1.Status{Announced: &v1alpha1.Announced{Phase: runnerapi.PhaseHealthy}},
		})
	}
	all := calls(apps)
	assert.Len(t, all, 2)
	assert.Equal(t, Range{Through: "shop/a099"}, *all[0].Current)
	assert.Equal(t, Range{After: "shop/a099"}, *all[1].Current)
	assert.Equal(t, Healthy, all[1].Events[0].Type)
	assert.Equal(t, []Call{{Current: &Range{}}}, calls(nil), "all have ended")
}
