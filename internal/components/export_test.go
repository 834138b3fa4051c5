package components

// SetDigests has this build know other digests until restore is called.
func SetDigests(text string) (restore func()) {
	before := digestsFile
	digestsFile = []byte(text)
	return func() { digestsFile = before }
}
