//go:build amd64 && !noasm

#include "textflag.h"

#define BYTES 64
#define V0 Z0
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define V4 Z4
#define V5 Z5
#define V6 Z6
#define V7 Z7
#define V8 Z8
#define V9 Z9
#define V10 Z10
#define V11 Z11
#define V12 Z12
#define V13 Z13
#define V14 Z14
#define V15 Z15
#define MAXIMUM ·attentionMaximumAVX512
#define HIDDEN ·attentionMaximumHiddenAVX512
#define EXPONENTIALS ·attentionExpAVX512
#define GRADIENT ·attentionGradientAVX512
#include "attention_amd64.h"

