package objectmeta

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptCommands bounds how many commands an object remembers.
const keptCommands = 16

// RecordCommand records on an object, in the write that carries out a command, that the command
// was carried out. It reports whether that was not recorded before. A replica that was held up in
// the middle of a command, which another one carried out in its place, finds the record. It then
// leaves alone what newer commands have made since. An empty text stands for no command.
func RecordCommand(o metav1.Object, command string) (first bool) {
	if command == "" {
		return true
	}
	digest := CommandDigest(command)
	annotations := o.GetAnnotations()
	done := strings.Fields(annotations[Commands])
	if slices.Contains(done, digest) {
		return false
	}
	done = append(done, digest)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Commands] = strings.Join(done[max(len(done)-keptCommands, 0):], " ")
	o.SetAnnotations(annotations)
	return true
}

// CommandDigest returns what identifies a command on an object; an empty text for no command.
func CommandDigest(command string) string {
	if command == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:8])
}
