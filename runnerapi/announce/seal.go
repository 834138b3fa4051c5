package announce

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// HeaderSeal proves that the control plane wrote a message. Runners can write anything to the dead
// letters, because their queues name them. The seal is checked before a dead letter is sent again.
const HeaderSeal = "x-pipeops-seal"

// Seal returns the mark of a message that the control plane wrote, with its secret key.
func Seal(key, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Sealed reports whether mark is that of the message.
func Sealed(key, body []byte, mark any) bool {
	text, ok := mark.(string)
	return ok && len(key) > 0 && hmac.Equal([]byte(text), []byte(Seal(key, body)))
}
