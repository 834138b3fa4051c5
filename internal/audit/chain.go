package audit

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// batch is some records as they are kept: one to a line, and after them the hash
// of the last, so that a change of that one is noticed by itself.
type batch struct {
	lines [][]byte
	first runnerapi.AuditRecord
	head  runnerapi.AuditHead
}

// link chains records to the log's end and returns the batch and its text.
func link(head runnerapi.AuditHead, records []runnerapi.AuditRecord) (batch, []byte, error) {
	var b batch
	var text bytes.Buffer
	for i, r := range records {
		r.Seq, r.Prev, r.Hash = head.Seq+1, head.Hash, ""
		line, err := json.Marshal(r)
		if err == nil && len(line) > runnerapi.MaxAuditLine {
			r.Arguments, r.Message = nil, ""
			line, err = json.Marshal(r)
		}
		if err != nil {
			return b, nil, fmt.Errorf("audit: %w", err)
		}
		if i == 0 {
			b.first = r
		}
		head = runnerapi.AuditHead{Seq: r.Seq, Hash: runnerapi.AuditHash(line)}
		b.lines = append(b.lines, line)
		text.Write(line)
		text.WriteByte('\n')
	}
	b.head = head
	text.WriteString(head.Hash + "\n")
	return b, text.Bytes(), nil
}

// decode reads a batch and checks that it holds together.
func decode(text []byte) (batch, error) {
	var b batch
	if len(text) > MaxText {
		return b, fmt.Errorf("it has more than %d bytes", MaxText)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) < 2 || len(lines) > maxBatch+1 {
		return b, fmt.Errorf("it has %d lines", len(lines))
	}
	end := string(lines[len(lines)-1])
	for i, line := range lines[:len(lines)-1] {
		r, err := runnerapi.DecodeAuditRecord(line)
		if err != nil {
			return batch{}, err
		}
		switch {
		case i == 0:
			b.first = r
		case r.Seq != b.head.Seq+1:
			return batch{}, fmt.Errorf("record %d follows record %d", r.Seq, b.head.Seq)
		case r.Prev != b.head.Hash:
			return batch{}, fmt.Errorf("record %d was changed, or what follows it", b.head.Seq)
		}
		b.head = runnerapi.AuditHead{Seq: r.Seq, Hash: runnerapi.AuditHash(line)}
		b.lines = append(b.lines, line)
	}
	if end != b.head.Hash {
		return batch{}, fmt.Errorf("record %d was changed", b.head.Seq)
	}
	return b, nil
}

// records returns a batch's, with their hashes.
func (b batch) records() []runnerapi.AuditRecord {
	out := make([]runnerapi.AuditRecord, 0, len(b.lines))
	for _, line := range b.lines {
		r, err := runnerapi.DecodeAuditRecord(line)
		if err != nil {
			continue // decode has read it
		}
		r.Hash = runnerapi.AuditHash(line)
		out = append(out, r)
	}
	return out
}
