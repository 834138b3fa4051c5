package evidence

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// portTriers bounds the number of connections at a time, and portTriersOfNamespace that to pods
	// of one namespace: they may drop what comes.
	portTriers, portTriersOfNamespace = 4, 3
	// A pod is tried first after it was ready for a moment, then at growing intervals.
	firstPortTry = 3 * time.Second
	maxPortTries = time.Minute
	// mutePorts is how often an unreachable pod is tried after its program had to listen.
	mutePorts = 3
)

// ports tries the TCP ports that Apps declare and that no probe checks. It tries each pod until all
// its ports have accepted a connection, and never again after that.
type ports struct {
	reach podport.Reach
	leads func() bool
	now   func() time.Time
	store *appcache.Store
	queue workqueue.TypedDelayingInterface[types.UID]
	lanes *limit.Lanes[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*portsOf
}

// portsOf holds the ports of one pod.
type portsOf struct {
	app   runnerapi.Key
	pod   *corev1.Pod // name and address only
	ports []int32     // that have not accepted a connection yet
	open  bool        // another has
	by    time.Time   // when the program has to listen
	last  diagnose.PortTry
	pause time.Duration
	mute  int // tries without a result since then
}

func newPorts(store *appcache.Store, reach podport.Reach, leads func() bool, now func() time.Time) *ports {
	return &ports{
		reach: reach, leads: leads, now: now, store: store,
		queue: workqueue.NewTypedDelayingQueue[types.UID](), lanes: limit.NewLanes[types.UID](limit.PerOwner{Namespace: portTriersOfNamespace}),
		pods: map[types.UID]*portsOf{},
	}
}

// run returns after ctx and all tries have ended.
func (p *ports) run(ctx context.Context) {
	defer context.AfterFunc(ctx, p.queue.ShutDown)()
	var work sync.WaitGroup
	for range portTriers {
		work.Go(func() {
			p.lanes.Drain(p.queue, p.ownerOf, func(uid types.UID) { p.try(ctx, uid) })
		})
	}
	work.Wait()
}

// ownerOf returns a pod's namespace; none if the pod is gone.
func (p *ports) ownerOf(uid types.UID) limit.Owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.pods[uid]; known != nil {
		return limit.Owner{Namespace: known.app.Namespace}
	}
	return limit.Owner{}
}

// of returns the results for an App's pods, and schedules the first tries of new pods. It forgets
// the App's deleted pods.
func (p *ports) of(a *v1alpha1.App, pods []*corev1.Pod, s diagnose.Stabilization) map[types.UID]diagnose.PortTry {
	declared := diagnose.Unprobed(a.Spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetAllBut(a.Key(), pods)
	if len(declared) == 0 {
		return nil
	}
	tries := map[types.UID]diagnose.PortTry{}
	for _, pod := range pods {
		by, ready := s.ListensBy(pod)
		if known := p.pods[pod.UID]; known != nil {
			known.by = by
			tries[pod.UID] = known.last
			continue
		}
		if !ready {
			continue
		}
		p.pods[pod.UID] = &portsOf{
			app: a.Key(), ports: declared, by: by, pause: time.Second,
			pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
				Status:     corev1.PodStatus{PodIP: pod.Status.PodIP},
			},
		}
		first := min(firstPortTry, s.Unprobed/2)
		p.queue.AddAfter(pod.UID, by.Add(first-s.Unprobed).Sub(p.now()))
	}
	return tries
}

// forget removes an App's pods.
func (p *ports) forget(key runnerapi.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetAllBut(key, nil)
}

func (p *ports) forgetAllBut(key runnerapi.Key, pods []*corev1.Pod) {
	there := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		there[pod.UID] = true
	}
	for uid, known := range p.pods {
		if known.app == key && !there[uid] {
			delete(p.pods, uid)
		}
	}
}

// try tries one pod once and schedules the next try.
func (p *ports) try(ctx context.Context, uid types.UID) {
	p.mu.Lock()
	known := p.pods[uid]
	if known == nil || !p.leads() {
		delete(p.pods, uid) // the next leader tries it again
		p.mu.Unlock()
		return
	}
	pod, left := known.pod, known.ports
	p.mu.Unlock()

	var open []int32
	got, mute := diagnose.PortTry{}, false
	for _, port := range left {
		switch p.reach.Port(ctx, pod, port) {
		case podport.Open:
			open = append(open, port)
		case podport.Refused:
			got.Refused = port
		case podport.Loopback:
			got.Loopback = port
		case podport.Mute:
			mute = true
		}
	}
	if ctx.Err() != nil {
		return
	}
	if p.note(known, uid, open, got, mute) {
		p.store.Resync(ctx, known.app)
	}
}

// note records the result of a try, and reports whether it changes the App's state.
func (p *ports) note(known *portsOf, uid types.UID, open []int32, got diagnose.PortTry, mute bool) (isNews bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, before := p.now(), known.last
	known.ports = slices.DeleteFunc(slices.Clone(known.ports), func(port int32) bool { return slices.Contains(open, port) })
	if known.open = known.open || len(open) > 0; known.open {
		got.Refused, got.Idle = 0, got.Refused
	}
	known.last = got
	known.last.At = now
	if mute && !now.Before(known.by) {
		known.mute++
	}
	silent := got.Refused != 0 || got.Idle != 0
	isNews = got.Refused != before.Refused || got.Idle != before.Idle || got.Loopback != before.Loopback ||
		silent && before.At.Before(known.by) && !now.Before(known.by)
	if len(known.ports) == 0 || !silent && got.Loopback == 0 && known.mute >= mutePorts {
		return isNews
	}
	next := known.pause
	if end := known.by.Sub(now); end > 0 {
		next = min(next, end+time.Millisecond) // the try at the end of the period is the one that counts
	}
	known.pause = min(2*known.pause, maxPortTries)
	p.queue.AddAfter(uid, next)
	return isNews
}
