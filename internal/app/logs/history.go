package logs

import (
	"container/heap"
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// history merges what the pods have written so far by time.
func (r *reading) history(ctx context.Context, pods []*corev1.Pod) error {
	merge := &merge{}
	defer merge.close()
	for _, pod := range pods {
		stream, err := r.open(ctx, pod, r.logOptions())
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := merge.add(stream); err != nil {
			return err
		}
	}
	var archive *archived
	if r.wantsArchive() {
		var err error
		if archive, err = r.addArchive(ctx, merge); err != nil {
			return err
		}
	}
	for merge.Len() > 0 {
		if err := r.pass(merge.heads[0].line); err != nil {
			return err
		}
		if err := merge.advance(); err != nil {
			return err
		}
	}
	if archive != nil {
		return archive.err
	}
	return nil
}

// gone reports whether a log is not there (any more): the pod was deleted, or its container has not
// started after all.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) }

// merge is a heap of streams by the time of their next line.
type merge struct{ heads []head }

// source is a log that is read line by line, in order of time.
type source interface {
	next() (podLine, error) // io.EOF after the last line
	close()
}

type head struct {
	stream source
	line   podLine
}

func (m *merge) Len() int { return len(m.heads) }
func (m *merge) Less(i, j int) bool {
	return m.heads[i].line.line.Time.Before(m.heads[j].line.line.Time)
}
func (m *merge) Swap(i, j int) { m.heads[i], m.heads[j] = m.heads[j], m.heads[i] }
func (m *merge) Push(x any)    { m.heads = append(m.heads, x.(head)) }

// Pop implements heap.Interface; it removes the last head.
func (m *merge) Pop() any {
	last := m.heads[len(m.heads)-1]
	m.heads = m.heads[:len(m.heads)-1]
	return last
}

func (m *merge) add(s source) error {
	line, err := s.next()
	if err != nil {
		s.close()
		return ended(err)
	}
	heap.Push(m, head{s, line})
	return nil
}

// advance reads the next line of the stream that was at the top.
func (m *merge) advance() error {
	top := &m.heads[0]
	line, err := top.stream.next()
	if err != nil {
		top.stream.close()
		heap.Pop(m)
		return ended(err)
	}
	top.line = line
	heap.Fix(m, 0)
	return nil
}

func (m *merge) close() {
	for _, h := range m.heads {
		h.stream.close()
	}
}

// ended lets the end of a log be no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
