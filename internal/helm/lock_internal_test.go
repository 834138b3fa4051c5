package helm

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// TestLock_ExpiredWritesNothing has a process that was stopped and continues. It learns only later
// that another one has the lock.
func TestLock_ExpiredWritesNothing(t *testing.T) {
	l := &lock{holding: holding{Renewed: time.Now()}}
	require.NoError(t, l.stands())
	l.Renewed = time.Now().Add(-staleAfter)
	require.ErrorContains(t, l.stands(), "another command may be at work")

	s := &store{fence: t.Context(), held: l.stands}
	rel := &release.Release{Name: "r", Info: &release.Info{Status: common.StatusDeployed}}
	require.ErrorContains(t, s.Create("r", rel), "another command")
	require.ErrorContains(t, s.Update("r", rel), "another command")
	_, err := s.Delete("r")
	require.ErrorContains(t, err, "another command")
	c := &cluster{held: l.stands}
	_, err = c.Create(nil)
	require.ErrorContains(t, err, "another command")
	_, err = c.Update(nil, nil)
	require.ErrorContains(t, err, "another command")
	_, errs := c.Delete(nil, "")
	assert.Len(t, errs, 1)
}

// TestLock_FutureRenewal: a lock that another client wrote, with a time far ahead, blocks no
// release.
func TestLock_FutureRenewal(t *testing.T) {
	now := time.Now()
	for ahead, live := range map[time.Duration]bool{
		0: true, staleAfter / 2: true, -staleAfter / 2: true, staleAfter: false, -staleAfter: false, 24 * 365 * time.Hour: false,
	} {
		assert.Equal(t, live, holding{Holder: "other", Replica: "other", Renewed: now.Add(ahead)}.live(&Releases{}, now), ahead)
		assert.Equal(t, ahead.Abs() > theirsAfter, record{version: 1, updated: now.Add(ahead)}.abandoned(now), ahead)
	}
}

// slowMaps has one ConfigMap, and answers an update when it is told to. A caller who no longer
// waits does not hear that it was carried out.
type slowMaps struct {
	corev1client.ConfigMapInterface
	at     corev1.ConfigMap
	answer chan struct{}
}

func (m *slowMaps) Update(ctx context.Context, next *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if next.ResourceVersion != m.at.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, next.Name, nil)
	}
	version, _ := strconv.Atoi(m.at.ResourceVersion)
	m.at = *next.DeepCopy()
	m.at.ResourceVersion = strconv.Itoa(version + 1)
	<-m.answer
	return m.at.DeepCopy(), ctx.Err()
}

func TestLock_ReleasedDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps := &slowMaps{at: corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}, answer: make(chan struct{})}
		l := &lock{maps: maps, at: maps.at.DeepCopy(), holding: holding{Renewed: time.Now()}}
		ctx, unhold := context.WithCancel(t.Context())
		held := make(chan struct{})
		go func() {
			defer close(held)
			l.hold(ctx, func(err error) { t.Error(err) })
		}()
		l.say("comparing")
		time.Sleep(reportEvery) // of the bubble's clock
		synctest.Wait()
		require.NotEmpty(t, maps.at.Data, "it is being renewed")
		unhold()
		close(maps.answer)
		<-held
		require.NoError(t, l.release(t.Context()))
		assert.Empty(t, maps.at.Data)
	})
}
