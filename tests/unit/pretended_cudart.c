/* A CUDA runtime that only pretends: enough for torch's C++ to ask for a card's capability.
   Offsets in cudaDeviceProp: warpSize 308, maxThreadsPerBlock 320, major 360, minor 364 (driver_types.h). */
#include <string.h>
#include <stdlib.h>
static int maj(){char*s=getenv("PRETENDED_CAPABILITY");return s?atoi(s)/10:9;}
static int mnr(){char*s=getenv("PRETENDED_CAPABILITY");return s?atoi(s)%10:0;}
int cudaGetDeviceCount(int*n){*n=1;return 0;}
int cudaGetDevice(int*d){*d=0;return 0;}
int cudaSetDevice(int d){return 0;}
int cudaDriverGetVersion(int*v){*v=13000;return 0;}
int cudaRuntimeGetVersion(int*v){*v=13000;return 0;}
static int fill(char*p){memset(p,0,600);strcpy(p,"fake");*(int*)(p+308)=32;*(int*)(p+320)=1024;*(int*)(p+360)=maj();*(int*)(p+364)=mnr();return 0;}
int cudaGetDeviceProperties_v2(char*p,int d){return fill(p);}
int cudaGetDeviceProperties(char*p,int d){return fill(p);}
int cudaDeviceGetAttribute(int*v,int a,int d){ if(a==75)*v=maj(); else if(a==76)*v=mnr(); else *v=1; return 0;}
int cudaStreamIsCapturing(void*s,int*st){*st=0;return 0;}
int cudaDeviceGetStreamPriorityRange(int*l,int*g){*l=0;*g=0;return 0;}
int cudaStreamCreateWithPriority(void**s,unsigned f,int p){*s=0;return 0;}
int cudaGetLastError(void){return 0;}
int cudaPeekAtLastError(void){return 0;}
int cudaEventCreateWithFlags(void**e,unsigned f){*e=(void*)8;return 0;}
int cudaEventRecord(void*e,void*s){return 0;}
int cudaEventRecordWithFlags(void*e,void*s,unsigned f){return 0;}
int cudaStreamWaitEvent(void*s,void*e,unsigned f){return 0;}
int cudaEventDestroy(void*e){return 0;}
int cudaEventQuery(void*e){return 0;}
int cudaDeviceSynchronize(void){return 0;}
int cudaStreamSynchronize(void*s){return 0;}
