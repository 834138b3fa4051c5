package app

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	crevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// portTriers bounds the connections at a time.
	portTriers = 4
	// A pod is tried first when it was ready for a moment, then ever more seldom.
	firstPortTry = 3 * time.Second
	maxPortTries = time.Minute
	// mutePorts is how often a pod is tried that can be reached in no way.
	mutePorts = 3

	dialTimeout    = 2 * time.Second
	forwardTimeout = 5 * time.Second
)

// ports tries the TCP ports that Apps declare and that no probe looks at. Each pod is tried
// until all its ports accept a connection, and never again then.
type ports struct {
	dial    func(ctx context.Context, address string) error
	forward func(ctx context.Context, pod *corev1.Pod, port int32) error
	leads   func() bool
	now     func() time.Time
	resync  chan<- crevent.TypedGenericEvent[*App]
	queue   workqueue.TypedDelayingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*portsOf
}

// portsOf are those of one pod.
type portsOf struct {
	app   runnerapi.Key
	pod   *corev1.Pod // name and address alone
	ports []int32     // that have not accepted a connection yet
	by    time.Time   // when the program has to listen
	last  diagnose.PortTry
	pause time.Duration
	mute  int // tries that told nothing
}

func newPorts(e *Engine) *ports {
	var d net.Dialer
	return &ports{
		dial: func(ctx context.Context, address string) error {
			conn, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
		forward: e.tryForward, leads: e.leadership.leads, now: func() time.Time { return e.now() }, resync: e.leadership.resync,
		queue: workqueue.NewTypedDelayingQueue[types.UID](), pods: map[types.UID]*portsOf{},
	}
}

// Start makes ports a manager.Runnable. It returns when ctx has ended and so have all tries.
func (p *ports) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.queue.ShutDown)()
	var work sync.WaitGroup
	for range portTriers {
		work.Go(func() {
			for {
				uid, over := p.queue.Get()
				if over {
					return
				}
				p.try(ctx, uid)
				p.queue.Done(uid)
			}
		})
	}
	work.Wait()
	return nil
}

// of is what the tries of an App's pods got, and has those tried that were not yet. It
// forgets the App's pods that are gone.
func (p *ports) of(a *App, pods []*corev1.Pod, s diagnose.Stabilization) map[types.UID]diagnose.PortTry {
	declared := diagnose.Unprobed(a.Spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetAllBut(a.key(), pods)
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
			app: a.key(), ports: declared, by: by, pause: time.Second,
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

// forget lets an App's pods go.
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

// try tries one pod once, and plans the next try.
func (p *ports) try(ctx context.Context, uid types.UID) {
	p.mu.Lock()
	known := p.pods[uid]
	if known == nil || !p.leads() {
		delete(p.pods, uid) // whoever leads next tries it anew
		p.mu.Unlock()
		return
	}
	pod, left := known.pod, known.ports
	p.mu.Unlock()

	var open []int32
	got, mute := diagnose.PortTry{}, false
	for _, port := range left {
		switch p.reach(ctx, pod, port) {
		case portOpen:
			open = append(open, port)
		case portRefused:
			got.Refused = port
		case portLoopback:
			got.Loopback = port
		case portMute:
			mute = true
		}
	}
	if ctx.Err() != nil {
		return
	}
	if p.note(known, uid, open, got, mute) {
		p.tell(ctx, known.app)
	}
}

// note keeps what a try got, and says whether that is news of the App.
func (p *ports) note(known *portsOf, uid types.UID, open []int32, got diagnose.PortTry, mute bool) (isNews bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, before := p.now(), known.last
	known.ports = slices.DeleteFunc(slices.Clone(known.ports), func(port int32) bool { return slices.Contains(open, port) })
	known.last = got
	known.last.At = now
	if mute {
		known.mute++
	}
	isNews = got.Refused != before.Refused || got.Loopback != before.Loopback ||
		got.Refused != 0 && before.At.Before(known.by) && !now.Before(known.by)
	if len(known.ports) == 0 || got.Refused == 0 && got.Loopback == 0 && known.mute >= mutePorts {
		return isNews
	}
	next := known.pause
	if end := known.by.Sub(now); end > 0 {
		next = min(next, end+time.Millisecond) // the try that counts is that at the end of the stay
	}
	known.pause = min(2*known.pause, maxPortTries)
	p.queue.AddAfter(uid, next)
	return isNews
}

// tell has the App looked at.
func (p *ports) tell(ctx context.Context, key runnerapi.Key) {
	select {
	case p.resync <- crevent.TypedGenericEvent[*App]{Object: &App{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}:
	case <-ctx.Done():
	}
}

// portState is what one try of one port got.
type portState int

const (
	portMute portState = iota // the pod cannot be reached
	portOpen
	portRefused
	portLoopback
)

// reach tries a port from outside, and inside the pod where that gets no connection: a
// NetworkPolicy can refuse the agent just as the pod does. Only what both refuse is refused.
func (p *ports) reach(ctx context.Context, pod *corev1.Pod, port int32) portState {
	direct, cancel := context.WithTimeout(ctx, dialTimeout)
	outside := p.dial(direct, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))))
	cancel()
	if outside == nil {
		return portOpen
	}
	inside, cancel := context.WithTimeout(ctx, forwardTimeout)
	err := p.forward(inside, pod, port)
	cancel()
	switch {
	case err == nil && errors.Is(outside, syscall.ECONNREFUSED):
		return portLoopback
	case err == nil:
		return portOpen
	case strings.Contains(err.Error(), "connection refused"):
		return portRefused
	}
	return portMute
}
