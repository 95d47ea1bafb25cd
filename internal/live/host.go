package live

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// knownHosts refuses requests under a name that is not this machine's: the address in
// numbers, "localhost", or, where others may come at all, the name that is listened on and
// the machine's own. Against DNS rebinding, for which a page needs a name that its owner
// can point at this machine.
func knownHosts(listened string, next http.Handler) http.Handler {
	known := map[string]bool{"localhost": true}
	if ip := net.ParseIP(listened); ip == nil || !ip.IsLoopback() {
		known[strings.ToLower(listened)] = true
		if name, err := os.Hostname(); err == nil {
			known[strings.ToLower(name)] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
		if !known[host] && net.ParseIP(host) == nil {
			http.Error(w, "this server is known by its address in numbers and as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
