
Ş/device:GPU:0ÔStream #20(Compute)"h€ò‹¨	€ÿõ±" "*all-gather-start.5"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"h€ÚçÌG€ÿõ±" "*all-gather-start.5"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"i€ÂÃñ…€ÿõ±" "*all-gather-start.5"*	jit_train"+*'jit(train)/jvp()/while/body/dot_generalÒ
Stream #7(Compute)"h€”ëÜ€ı´³" "*all-gather-start.4"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"g€‘ 	€‘Á" "*gemm_fusion_dot.1"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"r€¯±Ñ€ÃÉ#" "*gemm_fusion_dot.2"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"u€òúá=€ÎäÍ" "*reduce-scatter-start"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"h€üÆB€ı´³" "*all-gather-start.4"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"g€ùû´G€‘Á" "*gemm_fusion_dot.1"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"r€—öX€ÃÉ#" 	"*gemm_fusion_dot.2"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"u€ÚÖ†|€ÎäÍ" 
"*reduce-scatter-start"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"i€ä¢¦€€ı´³" "*all-gather-start.4"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"h€á×Ù…€‘Á" "*gemm_fusion_dot.1"*	jit_train"+*'jit(train)/jvp()/while/body/dot_general"s€ÿèš—€ÃÉ#" "*gemm_fusion_dot.2"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"v€Â²«º€ÎäÍ" "*reduce-scatter-start"*	jit_train"6*2jit(train)/transpose(jvp())/while/body/dot_general"gemm_fusion_dot_1"gemm_fusion_dot_2"IEAncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"VRNncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)*correlation_id*
hlo_module*
hlo_op*name
õ	/host:CPUËHost Threads/7"€ûÆÒÀ–±" "€¨©×À–±" "€Õ‹ÜÀ–±" "€‚îàÀ–±" "€¯ĞåÀ–±" "€ã¢÷@À–±" "€…ü@À–±" "€½ç€AÀ–±" "€êÉ…AÀ–±" 	"€—¬ŠAÀ–±" 
"€Ëş›À–±" "€øà À–±" "€¥Ã¥À–±" "€Ò¥ªÀ–±" "€ÿ‡¯À–±" Gpython"€Œ€è’&" ("€ôèÂ@€è’&" )"€ÜÄç~€è’&" *"cuLaunchKernelEx"	train*correlation_id*step_num
Ü/host:metadata"’	jit_train*ı2ø
õ
	jit_train0k
wrapped(0
whole	parameter€ € ˜;
reduce-scatter.7reduce-scatter€€ ˜ âø
main(0
norm	parameter@€ ˜

up	parameter€€ ˜}
all-gather-start.4all-gather-start"@€ "€€ ˜ 
âÚ.{"collective_backend_config":{"is_sync":true}}4
all-gather-done.4all-gather-done€€ ˜ M
all-gather-start.5all-gather-start"€€ "€ € ˜ â4
all-gather-done.5all-gather-done€ € ˜ u
reduce-scatter-startasync-start"€ € "€€ ˜ °Ú.{"collective_backend_config":{"is_sync":true}}2
*0.10.1*	Hlo Proto*jaxlib_version