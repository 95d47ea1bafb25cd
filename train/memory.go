package train

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// machineMemory is the memory this process may use, in bytes: that of the
// machine, or less if a control group limits it; 0 if the system does not say.
func machineMemory() int64 {
	most := physicalMemory()
	if limit := groupLimit(); limit > 0 && (most == 0 || limit < most) {
		most = limit
	}
	return most
}

func physicalMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// groupLimit is the smallest memory limit of the control groups that hold this
// process, 0 if there is none.
func groupLimit() int64 {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		// hierarchy:controllers:path, with empty controllers in version 2.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// In a container the path may be the host's: then only the root is there.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if limit := readLimit(path.Join(root, group, file)); limit > 0 {
				least = min(least, limit)
			}
			if group == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

func readLimit(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return limit
}
