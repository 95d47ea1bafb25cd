package remat

import "sync"

// The menus that were found last, by the layer's key. The programs of a step, the ranks of a
// process, and a refused budget and the next have equal layers, and a menu takes long to find.
var remembered = struct {
	sync.Mutex
	menus map[string]func() menu
}{menus: map[string]func() menu{}}

// mostRemembered bounds the menus that are remembered.
const mostRemembered = 256

// menu is choose, once in a process for layers that are equal. Nobody changes what it returns.
func (l *layer) menu() menu {
	key := l.key(0, 0)
	remembered.Lock()
	find := remembered.menus[key]
	if find == nil {
		if len(remembered.menus) == mostRemembered {
			clear(remembered.menus)
		}
		find = sync.OnceValue(l.choose)
		remembered.menus[key] = find
	}
	remembered.Unlock()
	return find()
}
