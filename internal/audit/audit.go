// Package audit records what Runners did. The append-only log's records are chained by hash. Its
// size is bounded, and calls do not wait for its writes, which are batched. All replicas of an
// agent write one log: a batch is stored under the number of its first record, which only one batch
// can have.
//
// Callers choose where batches are stored: in files, or in objects of the cluster. Package
// runnerapi defines the records.
package audit

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Bounds of the log.
const (
	// Keep is how many batches an agent keeps.
	Keep = 2000
	// maxBatch is how many records go into one.
	maxBatch = 16
	// MaxText bounds the text of a batch, in bytes.
	MaxText = maxBatch*(runnerapi.MaxAuditLine+1) + 128
)

// Store keeps batches by the number of their first record.
type Store interface {
	// Put keeps a batch; false when there is one of that number.
	Put(ctx context.Context, first int64, text []byte) (bool, error)
	// Get reads a batch; nil when there is none.
	Get(ctx context.Context, first int64) ([]byte, error)
	// List returns the existing numbers, in order.
	List(ctx context.Context) ([]int64, error)
	// Delete removes a batch, if it is there.
	Delete(ctx context.Context, first int64) error
	// Most returns how many batches are kept.
	Most() int
	// String names the store, for messages.
	String() string
}
