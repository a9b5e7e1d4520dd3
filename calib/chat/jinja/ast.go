package jinja

// expr is an expression node. eval charges itself to the interpreter's budget.
type expr interface {
	eval(in *interp, sc *scope) (Value, error)
}

// stmt is a statement node; it appends what it prints to out.
type stmt interface {
	exec(in *interp, sc *scope, out *buffer) error
}

// Expressions. Each carries the line for error messages.
type (
	constExpr struct{ val Value }
	nameExpr  struct {
		line int
		name string
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct {
		line       int
		keys, vals []expr
	}
	unaryExpr struct {
		line int
		op   string // "-", "+", "not"
		x    expr
	}
	binaryExpr struct {
		line int
		op   string // arithmetic and "~"
		x, y expr
	}
	logicExpr struct {
		and  bool
		x, y expr
	}
	// compareExpr is a chain: x op0 y0 op1 y1 … with Python's meaning (each middle value is evaluated once).
	compareExpr struct {
		line int
		x    expr
		ops  []string
		ys   []expr
	}
	condExpr struct {
		cond, then expr
		els        expr // nil: undefined
	}
	attrExpr struct {
		line int
		x    expr
		name string
	}
	itemExpr struct {
		line   int
		x, key expr
	}
	sliceExpr struct {
		line              int
		x                 expr
		start, stop, step expr // nil where left out
	}
	callExpr struct {
		line int
		fn   expr
		args callArgs
	}
	filterExpr struct {
		line int
		x    expr // nil: the text of a filter or set block
		name string
		args callArgs
	}
	testExpr struct {
		line int
		x    expr
		name string
		neg  bool
		args callArgs
	}
)

// callArgs are the arguments of a call as written.
type callArgs struct {
	pos   []expr
	names []string // of keyword arguments, beside kw
	kw    []expr
	star  expr // *args
	star2 expr // **kwargs
}

// Statements.
type (
	textStmt  struct{ text string }
	printStmt struct {
		line int
		x    expr
	}
	ifStmt struct {
		conds  []expr
		bodies [][]stmt
		els    []stmt
	}
	forStmt struct {
		line      int
		target    target
		iter      expr
		cond      expr // nil: none
		body, els []stmt
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	setBlock struct {
		line   int
		target target
		filter expr // nil: none
		body   []stmt
	}
	macroStmt struct {
		line int
		def  *macroDef
	}
	callStmt struct {
		line int
		call *callExpr
		body *macroDef
	}
	filterStmt struct {
		line   int
		filter expr
		body   []stmt
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
	}
	// blockStmt is a body with a scope of its own: block and generation tags.
	blockStmt struct{ body []stmt }
	jumpStmt  struct{ err error } // errBreak or errContinue
)

// macroDef is the code of a macro or of the body of a call block.
type macroDef struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []stmt
	// Which implicit variables the body mentions: only then does a call accept what they would catch.
	varargs, kwargs, caller bool
}

// target is what set and for assign to.
type target struct {
	name  string
	attr  string   // ns.attr when not empty
	tuple []target // a, b, …
}
