//go:build !linux

package doctor

func freeSpace(string) (bytes uint64, known bool, err error) { return 0, false, nil }

func freeMemory() (bytes uint64, known bool, err error) { return 0, false, nil }
