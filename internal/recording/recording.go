// Package recording records exec sessions for the cluster's owner, as asciicast v2. A session
// begins only once the beginning of its recording is stored. It ends as soon as it cannot be
// recorded any further. The size of a recording and of all together is bounded.
//
// Callers choose where recordings are stored: in files, or in objects of the cluster. Package
// runnerapi serves the sessions.
package recording

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
)

// Bounds of recordings.
const (
	// MaxSession is how much of one session is recorded, in bytes of asciicast.
	MaxSession = 2 << 20
	// MaxDuration is how long a session is recorded. It is less than KeepAtLeast, so that a
	// recording in progress is never removed.
	MaxDuration = 12 * time.Hour
	// maxParts is in how many parts one recording is stored.
	maxParts = 512
	// maxOpen is how many sessions one replica records at a time.
	maxOpen = 16
	// maxOpenOfRunner is how many of them one Runner may have.
	maxOpenOfRunner = 8

	// MaxTotal is how much is stored of all sessions together, in bytes.
	MaxTotal = 64 << 20
	// MaxTotalParts is how many parts are stored of all sessions together.
	MaxTotalParts = 8192
	// KeepAtLeast is how long a recording stays even if there is no room for others. Without it a
	// Runner could push out the record of what it did, by further sessions.
	KeepAtLeast = 24 * time.Hour

	// MaxPart bounds the text of a part, in bytes.
	MaxPart = 256 << 10
)

// Store keeps recordings, each in parts that are numbered from 0.
type Store interface {
	// Put stores a part. A second Put of the same part changes nothing.
	Put(ctx context.Context, id string, part int, text []byte) error
	// Get reads a part; nil when there is none.
	Get(ctx context.Context, id string, part int) ([]byte, error)
	// List returns the stored recordings, oldest first.
	List(ctx context.Context) ([]Entry, error)
	// Delete removes a recording, if it is there.
	Delete(ctx context.Context, id string) error
	// String names the store, for messages.
	String() string
}

// Entry is a stored recording.
type Entry struct {
	ID    string
	Parts int   // how many there are
	Last  int   // the highest number of a part
	Bytes int64 // of all parts
}

// Add adds a part to the entry.
func (e *Entry) Add(part int, bytes int64) {
	e.Parts++
	e.Last = max(e.Last, part)
	e.Bytes += bytes
}

const (
	idTime   = "20060102t150405"
	idOwner  = 4 // bytes
	idRandom = 4 // bytes
)

var idForm = regexp.MustCompile(`^[0-9]{8}t[0-9]{6}-[0-9a-f]{16}$`)

// newID returns the ID of a Runner's recording that begins now. IDs sort by time, and have a digest
// of the Runner's name, so that a list of recordings shows whose share each counts for.
func newID(now time.Time, runner string) string {
	random := make([]byte, idRandom)
	_, _ = rand.Read(random) // it never fails
	return now.UTC().Format(idTime) + "-" + digest(runner) + hex.EncodeToString(random)
}

// digest returns the part of an ID that is the same for all recordings of a Runner.
func digest(runner string) string {
	sum := sha256.Sum256([]byte(runner))
	return hex.EncodeToString(sum[:idOwner])
}

// owner returns the digest of the Runner whose recording it is.
func owner(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	return rest[:min(len(rest), hex.EncodedLen(idOwner))]
}

// ValidID reports whether a text has the form of an ID.
func ValidID(id string) bool { return idForm.MatchString(id) }

// begun returns when a recording began, by its ID.
func begun(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	t, err := time.Parse(idTime, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
