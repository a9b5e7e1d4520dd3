package arch

import (
	"slices"

	"github.com/llmquant/quantize/formats/safeio"
)

// expertRule says which layers are mixtures of experts and of what shape.
type expertRule struct {
	count, topK, intermediate int
	normTopK                  bool
	step                      int   // every step-th layer, counted from 1
	dense                     []int // layers with a dense MLP regardless of step
}

func (r *expertRule) sparse(layer int) bool {
	return r != nil && r.count > 0 && (layer+1)%r.step == 0 && !slices.Contains(r.dense, layer)
}

// windowRule is the sliding window of each layer: size for the layers from first on, or for those that types calls
// sliding. Transformers gives each family its own rule for the same keys, and some families ignore layer_types; where
// a config states layer types that its own class would not follow, it is refused, because engines disagree about it.
type windowRule struct {
	size  int // 0: no layer has a window
	first int
	types []string // per layer; nil: by first
}

func (r windowRule) at(layer int) int {
	if r.types != nil && r.types[layer] != slidingAttention || r.types == nil && layer < r.first {
		return 0
	}
	return r.size
}

const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// noWindow: the family has no sliding window.
func noWindow(c *config, layers int) windowRule {
	return uniformWindow(c, layers, 0)
}

// windowEverywhere: sliding_window holds for every layer, null switches it off, absent means 4096 (Mistral).
func windowEverywhere(c *config, layers int) windowRule {
	return uniformWindow(c, layers, c.nullable("sliding_window", 4096, 1, maxPositions))
}

// windowIfEnabled: sliding_window holds for every layer if use_sliding_window (Qwen3 MoE).
func windowIfEnabled(c *config, layers int) windowRule {
	return uniformWindow(c, layers, enabledWindow(c))
}

// windowFromLayer: if use_sliding_window, layers from max_window_layers on have the window; an explicit layer_types
// wins over that rule (Qwen2, Qwen3).
func windowFromLayer(c *config, layers int) windowRule {
	r := windowRule{
		size:  enabledWindow(c),
		first: c.integer("max_window_layers", 28, 0, maxCount),
		types: layerTypes(c, layers),
	}
	if i := slices.Index(r.types, slidingAttention); i >= 0 && r.size == 0 {
		c.fail(safeio.Corruptf("layer_types calls layer %d %s but no sliding window is enabled", i, slidingAttention))
	}
	return r
}

func enabledWindow(c *config) int {
	if !c.boolean("use_sliding_window", false) {
		return 0
	}
	return c.nullable("sliding_window", 4096, 1, maxPositions)
}

// uniformWindow gives every layer the same window and refuses a layer_types that says otherwise.
func uniformWindow(c *config, layers, size int) windowRule {
	for i, t := range layerTypes(c, layers) {
		if (t == slidingAttention) != (size > 0) {
			c.fail(safeio.Unsupportedf("layer_types calls layer %d %q, which this architecture does not follow", i, t))
			break
		}
	}
	return windowRule{size: size}
}

// layerTypes returns nil when the config has none, otherwise one known type per layer.
func layerTypes(c *config, layers int) []string {
	types := c.strings("layer_types")
	if types == nil {
		return nil
	}
	if len(types) != layers {
		c.fail(safeio.Corruptf("layer_types has %d entries for %d layers", len(types), layers))
		return nil
	}
	for i, t := range types {
		if t != fullAttention && t != slidingAttention {
			c.fail(safeio.Unsupportedf("layer_types calls layer %d %q; supported: %s, %s", i, clip(t), fullAttention, slidingAttention))
			return nil
		}
	}
	return types
}
