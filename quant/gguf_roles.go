package quant

import (
	"strings"

	"github.com/llmquant/quantize/formats/arch"
)

// ggufRoles maps the kind of a GGUF tensor, its name without block number and suffix, to a role.
var ggufRoles = map[string]arch.Role{
	"token_embd": arch.RoleEmbed, "output": arch.RoleHead,
	"attn_q": arch.RoleQ, "attn_k": arch.RoleK, "attn_v": arch.RoleV, "attn_output": arch.RoleO,
	"ffn_gate": arch.RoleGate, "ffn_up": arch.RoleUp, "ffn_down": arch.RoleDown,
	"ffn_gate_exps": arch.RoleGate, "ffn_up_exps": arch.RoleUp, "ffn_down_exps": arch.RoleDown,
	"ffn_gate_inp": arch.RoleRouter,
}

// GGUFRole tells what a GGUF tensor is for.
func GGUFRole(name string) arch.Role {
	parts := strings.Split(name, ".")
	if parts[0] == "blk" && len(parts) > 2 {
		parts = parts[2:]
	}
	switch {
	case strings.HasSuffix(parts[0], "norm"):
		return arch.RoleNorm
	case parts[len(parts)-1] == "bias":
		return arch.RoleBias
	}
	if role, ok := ggufRoles[parts[0]]; ok {
		return role
	}
	return arch.RoleUnknown
}
