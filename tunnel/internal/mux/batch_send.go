package mux

import "time"

// flushSoon starts a goroutine that sends waiting data; the goroutine exists only while there is
// data to send.
func (b *batch) flushSoon() {
	if b.busy {
		return
	}
	b.busy = true
	go func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for len(b.waiting) > 0 && b.err == nil {
			b.sendWaiting()
		}
		b.busy = false
		b.rested.Broadcast()
	}()
}

// sendWaiting sends what waits, without the lock, so that the next batch can be gathered.
func (b *batch) sendWaiting() {
	data, buffer := b.waiting, b.buffer
	b.waiting, b.buffer, b.grows = nil, nil, false
	b.next()
	b.mu.Unlock()
	var err error
	for sent := 0; err == nil && sent < len(data); sent += MaxWrite {
		err = b.write(data[sent:min(len(data), sent+MaxWrite)])
	}
	giveBack(buffer, data)
	b.mu.Lock()
	if err == nil {
		return
	}
	if b.err == nil {
		b.err = err
		b.release()
	}
	b.mu.Unlock()
	b.failed(err)
	b.mu.Lock()
}

// giveBack keeps a buffer for later, with what it has become.
func giveBack(buffer *[]byte, data []byte) {
	if cap(data) < batchSize {
		littles.Put(buffer)
		return
	}
	if cap(data) <= 2*batchSize { // it has grown with small frames, which is rare
		*buffer = data
	}
	buffers.Put(buffer)
}

// write returns one write, which may take no longer than the timeout.
func (b *batch) write(data []byte) error {
	if now := time.Now(); now.Sub(b.deadline) > writeDeadlineEvery-b.timeout {
		b.deadline = now.Add(b.timeout)
		if err := b.conn.SetWriteDeadline(b.deadline); err != nil {
			return err
		}
	}
	if b.below == nil || len(data) <= maxRecord {
		_, err := b.conn.Write(data)
		return err
	}
	b.below.Cork()
	_, err := b.conn.Write(data)
	if late := b.below.Uncork(); err == nil {
		err = late
	}
	return err
}
