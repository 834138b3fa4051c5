package announce

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// headerSeal proves that the control plane wrote a message. Runners can write anything to the dead
// letters, because their queues name them. The seal is checked before a dead letter is sent again.
const headerSeal = "x-pipeops-seal"

func seal(key, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func sealed(key, body []byte, mark any) bool {
	text, ok := mark.(string)
	return ok && len(key) > 0 && hmac.Equal([]byte(text), []byte(seal(key, body)))
}
